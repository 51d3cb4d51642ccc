"""The platform properties of this workspace: what a test asks for and a worker offers.

Pool: `cpu` or `gpu`; every platform names one, because an action that names none may land on
any worker. The others are for the GPU pool: `gpu` is the kind (a worker offers `nvidia` and its
exact model), `gpu-count` the devices of one slot, `gpu-sm` every compute capability up to its own.
docs/remote.md maps them to other services.
"""

# Given once by an action, and compared with what a worker offers.
UNIQUE = ("Pool", "gpu-count")
MATCHED = ("Pool", "gpu", "gpu-count", "gpu-sm")
# Handed to the worker without being compared.
PASSED_ON = ("OSFamily", "container-image")
