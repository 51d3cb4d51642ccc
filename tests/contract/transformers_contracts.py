"""What the tests rely on in transformers, whose states are the reference; compared with 4.57.6."""

from tests.contract.contract import Contract
from tests.contract.expectations import Call, Does, Has
from tests.contract.relying import REFERENCE, TINY_MODELS

STATES = (
    Contract(
        "transformers.utils.generic:check_model_inputs",
        Does(
            "takes the first layer's input, each layer's output, and the normed state last",
            "collected_outputs[key] += (args[0],)",
            "collected_outputs[key] += (output,)",
            "collected_outputs[key] += (outputs.last_hidden_state,)",
        ),
        (REFERENCE,),
        "hidden_states[k] is capture point k, but for the last, which has passed the norm",
    ),
    Contract(
        "transformers.models.llama.modeling_llama:LlamaModel",
        Has("layers", "norm"),
        (REFERENCE,),
        "the last capture point is taken before the norm",
    ),
    Contract(
        "transformers.models.llama.modeling_llama:LlamaForCausalLM",
        Has("model", "lm_head"),
        (REFERENCE,),
        "lm_head(norm(state)) must choose the target's own next token",
    ),
    Contract(
        "transformers.modeling_utils:PreTrainedModel.from_pretrained",
        Call("pretrained_model_name_or_path", "config=", "dtype=", "attn_implementation="),
        (REFERENCE,),
        "the reference runs in the type of the target",
    ),
    Contract(
        "transformers.modeling_utils:PreTrainedModel.from_pretrained",
        Does("renames weights by key_mapping", 'kwargs.pop("key_mapping", None)'),
        (REFERENCE,),
        "the weights of Kimi-K2.5 have another prefix than DeepSeek's",
    ),
    Contract(
        "transformers.models.deepseek_v3.modeling_deepseek_v3:DeepseekV3TopkRouter.__init__",
        Does(
            "keeps the router's bias in a buffer",
            'self.register_buffer("e_score_correction_bias", ...)',
        ),
        (TINY_MODELS,),
        "the tiny models are given a router without ties through it",
    ),
)
