"""From summed gradients to an update, the same for one process and for many."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from eagle3.training.config import OptimizerConfig


class Optimizer:
    """AdamW, or Muon for the weight matrices of the layers and AdamW for the rest.

    Muon (torch.optim.Muon) takes AdamW's learning rate and weight decay, scaled as its authors
    do to match. Head and norms are AdamW's in any case.
    """

    def __init__(self, draft: nn.Module, config: OptimizerConfig) -> None:
        self._config = config
        self.parameters = {
            name: parameter
            for name, parameter in draft.named_parameters()
            if parameter.requires_grad
        }
        matrices = [
            parameter
            for name, parameter in self.parameters.items()
            if config.optimizer == "muon"
            and parameter.ndim == 2
            and not name.startswith("lm_head.")
        ]
        taken = {id(parameter) for parameter in matrices}
        rest = [value for value in self.parameters.values() if id(value) not in taken]
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                rest,
                lr=config.learning_rate,
                betas=(config.beta1, config.beta2),
                weight_decay=config.weight_decay,
                fused=rest[0].device.type == "cuda",
            )
        ]
        if matrices:
            self._optimizers.append(
                torch.optim.Muon(
                    matrices,
                    lr=config.learning_rate,
                    weight_decay=config.weight_decay,
                    adjust_lr_fn="match_rms_adamw",
                )
            )

    def step(self, rate_share: float) -> torch.Tensor:
        """Updates from the gradients, and drops them; returns their norm before clipping.

        Nothing here waits for the device.
        """
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), self._config.clip)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._config.learning_rate * rate_share
            optimizer.step()
            optimizer.zero_grad()
        return norm

    def state(self, *, keep: bool = True) -> dict[str, torch.Tensor]:
        """What it remembers, as `key.parameter`; see `gathered`."""
        memory = {
            f"{key}.{name}": value
            for name, parameter in self.parameters.items()
            for key, value in self._memory(parameter).items()
        }
        return gathered(memory, keep=keep)

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Takes over what `state` returned."""
        for full_name, value in state.items():
            key, _, name = full_name.partition(".")
            parameter = self.parameters[name]
            # AdamW's count of steps is one number for all parts of a parameter.
            held = as_held(value, parameter) if value.ndim else value.to(parameter.device)
            self._memory(parameter)[key] = held

    def _memory(self, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
        """What the parameter's optimizer keeps of it, to read or to fill."""
        return self._optimizer_of(parameter).state[parameter]

    def _optimizer_of(self, parameter: nn.Parameter) -> torch.optim.Optimizer:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                if any(parameter is member for member in group["params"]):
                    return optimizer
        raise KeyError("the parameter is not trained")


def gathered(tensors: Mapping[str, torch.Tensor], *, keep: bool) -> dict[str, torch.Tensor]:
    """`tensors` whole, on the CPU; none of them without `keep`, where nothing is copied there.

    All processes must ask together: a part is gathered from each, whoever keeps the whole.
    """
    kept = {}
    for name, tensor in tensors.items():
        if keep:
            kept[name] = whole(tensor)
        elif isinstance(tensor, DTensor):
            tensor.full_tensor()
    return kept


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor of which each process may hold a part, on the CPU."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def as_held(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The part of a whole `tensor` that this process holds of `like`, on its device."""
    tensor = tensor.to(like.device)
    if isinstance(like, DTensor):
        return distribute_tensor(tensor, like.device_mesh, like.placements)
    return tensor
