"""The platform properties of this workspace: what a test asks for and a worker offers.

Pool: `cpu` or `gpu`; every platform names one, because an action that names none may land on
any worker. The others are for the GPU pool: `gpu` is the kind (a worker offers `nvidia` and its
exact model), `gpu-count` the devices of one slot, `gpu-sm` every compute capability up to its own.
docs/remote.md maps them to other services.
"""

# Given at most once by an action.
UNIQUE = ("OSFamily", "Pool", "gpu-count")
# Compared with what a worker offers. BuildGrid compares OSFamily whether it is listed or not.
MATCHED = ("OSFamily", "Pool", "gpu", "gpu-count", "gpu-sm")
# Handed to the worker without being compared.
PASSED_ON = ("container-image",)
