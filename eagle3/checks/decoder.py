"""Whether vLLM knows the target, and where the decoder layers are."""

from collections.abc import Iterator

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation
from eagle3.engine.installed import supported_architectures


def check_decoder(situation: Situation) -> Iterator[Finding]:
    """The architecture in vLLM's list, and a row of as many layers as the configuration says."""
    named = situation.architectures
    known = [name for name in named if name in supported_architectures()]
    if not known:
        yield Finding(
            "decoder",
            "fail",
            f"vLLM has no model for {', '.join(named) or 'a config.json without `architectures`'}",
            "take another target, or a stack with a vLLM that has it",
        )
        return
    layers, num_layers = situation.checkpoint.layers, situation.architecture.num_layers
    if not layers:
        yield Finding("decoder", "ok", f"{known[0]}, {num_layers} layers by its config.json")
        return
    whole = [place for place, numbers in layers.items() if numbers >= set(range(num_layers))]
    if not whole:
        longest = max(layers, key=lambda place: len(layers[place]))
        yield Finding(
            "decoder",
            "fail",
            f"no row of {num_layers} layers in the weights; the longest, {longest}, has "
            f"{len(layers[longest])}",
            "complete the checkpoint, or correct num_hidden_layers in its config.json",
        )
        return
    place = max(whole, key=lambda place: len(layers[place]))
    extra = len(layers[place]) - num_layers
    beyond = f", and {extra} for predicting more tokens" if extra else ""
    yield Finding("decoder", "ok", f"{known[0]}, {num_layers} layers in {place}{beyond}")
