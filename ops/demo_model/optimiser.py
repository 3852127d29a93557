"""Muon for the matrices, AdamW for the rest; both keep their state in one dictionary."""

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

# Coefficients of the quintic Newton-Schulz iteration published with Muon.
QUINTIC = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS = 5


class Muon(Optimizer):
    """Momentum whose update is made orthogonal; fused projections are split by `num_parts`."""

    def __init__(
        self, groups: list[dict[str, object]], rate: float, momentum: float, decay: float
    ) -> None:
        super().__init__(groups, {"lr": rate, "momentum": momentum, "weight_decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; equal shapes go through one batched call."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(tuple(parameter.shape), []).append(parameter)
            for parameters in by_shape.values():
                self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict[str, float]) -> None:
        num_parts = int(group["num_parts"])
        nudges = [self._nudge(parameter, group["momentum"]) for parameter in parameters]
        rows, columns = parameters[0].shape
        stacked = torch.stack(nudges).view(-1, rows // num_parts, columns)
        scale = max(1.0, rows / num_parts / columns) ** 0.5
        updates = orthogonal(stacked).view(len(parameters), rows, columns)
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(update, alpha=-group["lr"] * scale)

    def _nudge(self, parameter: Tensor, momentum: float) -> Tensor:
        """The Nesterov step of the running mean of gradients."""
        state = self.state[parameter]
        if not state:
            state["mean"] = torch.zeros_like(parameter)
        mean: Tensor = state["mean"]
        gradient = parameter.grad
        assert gradient is not None
        mean.lerp_(gradient, 1 - momentum)
        return gradient.lerp(mean, momentum)


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest matrices with equal singular values, roughly: [n, rows, columns], float32."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    first, third, fifth = QUINTIC
    for _ in range(NUM_ITERATIONS):
        square = x @ x.mT
        x = first * x + (third * square + fifth * square @ square) @ x
    result: Tensor = x.mT if is_tall else x
    return result.float().contiguous()


class Optimisers:
    """Both optimisers behind one step; owned by the training loop."""

    def __init__(self, learner: nn.Module, muon_rate: float, adam_rate: float) -> None:
        matrices, fused, tables, mergers, rest = _sort(learner)
        groups: list[dict[str, object]] = [
            {"params": matrices, "num_parts": 1},
            {"params": fused, "num_parts": 3},
        ]
        self._muon = Muon(groups, muon_rate, momentum=0.95, decay=0.01)
        adam_groups = [
            {"params": tables, "weight_decay": 0.01, "share": 1.0},
            {"params": mergers, "weight_decay": 0.01, "share": 0.5},
            {"params": rest, "weight_decay": 0.0, "share": 1.0},
        ]
        self._adam = AdamW(adam_groups, lr=adam_rate, betas=(0.9, 0.98), fused=True)
        self._rates = muon_rate, adam_rate
        self._clipped = [*tables, *mergers, *rest]

    def step(self, rate: float) -> None:
        """One update at a share `rate` of the full learning rates, then forget the gradients."""
        nn.utils.clip_grad_norm_([p for p in self._clipped if p.grad is not None], 1.0)
        for group in self._muon.param_groups:
            group["lr"] = self._rates[0] * rate
        for group in self._adam.param_groups:
            group["lr"] = self._rates[1] * rate * group["share"]
        self._muon.step()
        self._adam.step()
        self._muon.zero_grad(set_to_none=True)
        self._adam.zero_grad(set_to_none=True)

    def state(self) -> dict[str, object]:
        """Everything needed to go on."""
        return {"muon": self._muon.state_dict(), "adam": self._adam.state_dict()}

    def restore(self, state: dict[str, dict[str, object]]) -> None:
        """Go on from a state."""
        self._muon.load_state_dict(state["muon"])
        self._adam.load_state_dict(state["adam"])


def _sort(learner: nn.Module) -> tuple[list[nn.Parameter], ...]:
    """Matrices, fused query-key-value matrices, tables and kernels, mergers, all else."""
    matrices: list[nn.Parameter] = []
    fused: list[nn.Parameter] = []
    tables: list[nn.Parameter] = []
    mergers: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in learner.named_parameters():
        if parameter.ndim < 2 or not name.startswith("model."):
            rest.append(parameter)
        elif "merger" in name:
            mergers.append(parameter)
        elif parameter.ndim > 2 or "embed" in name or "lm_head" in name:
            tables.append(parameter)
        else:
            (fused if "qkv" in name else matrices).append(parameter)
    return matrices, fused, tables, mergers, rest
