"""What the capturing code relies on in vLLM's models, and a draft when it is served.

Compared with vLLM 0.16.0. The capturing code hooks the decoder layers, so that where they are,
how they are called and what they return matter for every family of targets.
"""

from tests.contract.contract import Contract
from tests.contract.expectations import Call, Does, Exists, Has, Inherits
from tests.contract.relying import (
    ARCHITECTURE,
    CAPTURE,
    CAPTURE_POINTS,
    DECODER,
    DRAFT,
    P05,
    P09,
    P13,
    P19,
    P24,
    P26,
    WORKER,
)

LLAMA = "vllm.model_executor.models.llama"
QWEN2 = "vllm.model_executor.models.qwen2"
QWEN3 = "vllm.model_executor.models.qwen3"
QWEN3_MOE = "vllm.model_executor.models.qwen3_moe"
GPT_OSS = "vllm.model_executor.models.gpt_oss"
DEEPSEEK = "vllm.model_executor.models.deepseek_v2"
GLM4 = "vllm.model_executor.models.glm4"
MINICPM = "vllm.model_executor.models.minicpm"
KIMI = "vllm.model_executor.models.kimi_k25"
INTERFACES = "vllm.model_executor.models.interfaces"

# The class with the head, the decoder stack below it, one layer of the stack.
FAMILIES = (
    (f"{LLAMA}:LlamaForCausalLM", f"{LLAMA}:LlamaModel", f"{LLAMA}:LlamaDecoderLayer"),
    (f"{QWEN2}:Qwen2ForCausalLM", f"{QWEN2}:Qwen2Model", f"{QWEN2}:Qwen2DecoderLayer"),
    (f"{QWEN3}:Qwen3ForCausalLM", f"{QWEN3}:Qwen3Model", f"{QWEN3}:Qwen3DecoderLayer"),
    (
        f"{QWEN3_MOE}:Qwen3MoeForCausalLM",
        f"{QWEN3_MOE}:Qwen3MoeModel",
        f"{QWEN3_MOE}:Qwen3MoeDecoderLayer",
    ),
    (f"{GPT_OSS}:GptOssForCausalLM", f"{GPT_OSS}:GptOssModel", f"{GPT_OSS}:TransformerBlock"),
    (
        f"{DEEPSEEK}:DeepseekV3ForCausalLM",
        f"{DEEPSEEK}:DeepseekV2Model",
        f"{DEEPSEEK}:DeepseekV2DecoderLayer",
    ),
    (f"{GLM4}:Glm4ForCausalLM", f"{GLM4}:Glm4Model", f"{GLM4}:Glm4DecoderLayer"),
    (f"{MINICPM}:MiniCPMForCausalLM", f"{MINICPM}:MiniCPMModel", f"{MINICPM}:MiniCPMDecoderLayer"),
)

# Stacks that take auxiliary states themselves; the others inherit theirs or have none.
SERVED_STACKS = tuple(
    stack
    for _, stack, _ in FAMILIES
    if not any(name in stack for name in ("Qwen3Model", "Deepseek", "Glm4"))
)

STACKS = (
    *(
        Contract(
            f"{head}.forward",
            Does("runs the stack as self.model", "self.model(...)"),
            (DECODER, WORKER, P09),
            "the decoder layers are looked for in model.model",
        )
        for head, _, _ in FAMILIES
    ),
    *(
        Contract(
            stack,
            Has("layers"),
            (DECODER, WORKER, P09),
            "the decoder layers are looked for in model.model.layers",
        )
        for _, stack, _ in FAMILIES
    ),
    *(
        Contract(
            f"{stack}.forward",
            Does(
                "calls each layer, keeping (hidden_states, residual)",
                """
                for __item in __layers:
                    ...
                    __stream, residual = layer(...)
                    ...
                """,
            ),
            (CAPTURE, DECODER, WORKER, P05),
            "hooks would not run, or once for several layers",
        )
        for _, stack, _ in FAMILIES
    ),
    *(
        Contract(
            f"{layer}.forward",
            Call("hidden_states=", "positions=", "residual="),
            (CAPTURE, WORKER, P24),
            "capture point 0 is what the first layer is given by this name",
        )
        for _, _, layer in FAMILIES
    ),
    *(
        Contract(
            f"{layer}.forward",
            Does(
                "keeps the stream as hidden_states + residual",
                "hidden_states, residual = self.input_layernorm(hidden_states, residual)",
                "return __output, residual",
            ),
            (CAPTURE, DECODER, WORKER, P05),
            "the sum of the two would not be the residual stream",
        )
        for _, _, layer in FAMILIES
        if "MiniCPM" not in layer
    ),
    Contract(
        f"{MINICPM}:MiniCPMDecoderLayer.forward",
        Does("hands on the whole stream and no residual", "return hidden_states, None"),
        (DECODER, WORKER, P26),
        "there is nothing to add to the stream",
    ),
    Contract(
        f"{KIMI}:KimiK25ForConditionalGeneration",
        Inherits("SupportsMultiModal"),
        (DECODER, WORKER, P09),
        "get_language_model() comes from there",
    ),
    Contract(
        f"{INTERFACES}:SupportsMultiModal.get_language_model",
        Call(),
        (DECODER, WORKER, P09),
        "how the decoder of a multimodal target is found",
    ),
    Contract(
        f"{KIMI}:KimiK25ForConditionalGeneration.__init__",
        Does(
            "builds its decoder as a DeepSeek",
            """
            self.language_model = init_vllm_registered_model(
                ..., architectures=["DeepseekV2ForCausalLM"]
            )
            """,
        ),
        (DECODER, WORKER, P09),
        "what holds for DeepSeek's layers would not hold for Kimi's",
    ),
    Contract(
        f"{KIMI}:KimiK25ProcessingInfo.get_supported_mm_limits",
        Does("calls its images vision_chunk", '"vision_chunk"'),
        (ARCHITECTURE,),
        "vision is switched off by this name; a text model would be loaded with its encoder",
    ),
    Contract(
        "vllm.transformers_utils.config:",
        Does("knows the model type kimi_k25", 'LazyConfigDict(..., kimi_k25="KimiK25Config")'),
        (P13,),
        "a checkpoint without code of its own would not be recognised",
    ),
    Contract(
        f"{DEEPSEEK}:DeepseekV2DecoderLayer.forward",
        Does(
            "rescales the residual in float16 only",
            """
            if ... and hidden_states.dtype == torch.float16:
                hidden_states *= 1.0 / self.routed_scaling_factor
                ...
            """,
        ),
        (P19,),
        "float16 is refused for this; states of another type would be scaled",
    ),
)

SERVING = (
    *(
        Contract(
            f"{stack}.forward",
            Does(
                "takes the auxiliary state of index i before layer i",
                """
                for __item in __layers:
                    ...
                    if __index in self.aux_hidden_state_layers:
                        ...
                    __stream, residual = layer(...)
                """,
            ),
            (CAPTURE_POINTS,),
            "a vLLM auxiliary id would no longer be the capture point of the same number",
        )
        for stack in SERVED_STACKS
    ),
    *(
        Contract(
            f"{head}.get_eagle3_aux_hidden_state_layers",
            Does(
                "is (2, n // 2, n - 3)",
                """
                __n = len(self.model.layers)
                return (2, __n // 2, __n - 3)
                """,
            ),
            (CAPTURE_POINTS,),
            "the default capture points would not be those that are served",
        )
        for head, _, _ in FAMILIES
        if "Deepseek" not in head and "Glm4" not in head
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._get_eagle3_aux_layers_from_config",
        Does(
            "reads eagle_aux_hidden_state_layer_ids of the draft's config",
            "hf_config.eagle_aux_hidden_state_layer_ids",
        ),
        (DRAFT,),
        "the draft would be served with states of other layers than it was trained on",
    ),
    Contract(
        "vllm.model_executor.models.registry:",
        Does(
            "has Eagle3LlamaForCausalLM",
            '("llama_eagle3", "Eagle3LlamaForCausalLM")',
            '"Eagle3LlamaForCausalLM"',
        ),
        (DRAFT,),
        "the class that serves the draft",
    ),
    Contract(
        "vllm.model_executor.models.llama_eagle3:Eagle3LlamaForCausalLM",
        Exists(),
        (DRAFT,),
        "the class that serves the draft",
    ),
    Contract(
        "vllm.model_executor.models.llama_eagle3:Eagle3LlamaForCausalLM.compute_logits",
        Does(
            "reads d2t as offsets from draft id to target id",
            "targets = base + self.draft_id_to_target_id",
        ),
        (DRAFT,),
        "the draft's tokens would be mapped to wrong tokens of the target",
    ),
    Contract(
        "vllm.model_executor.models.llama_eagle3:Eagle3LlamaForCausalLM.load_weights",
        Does(
            "loads d2t and leaves t2d out",
            """
            if "t2d" in name:
                continue
            """,
            'name = name.replace("d2t", "draft_id_to_target_id")',
        ),
        (DRAFT,),
        "names of the vocabulary map in the draft's weights",
    ),
    Contract(
        "vllm.model_executor.models.llama_eagle3:LlamaModel.__init__",
        Does(
            "takes three states of target_hidden_size each",
            "fc_input_size = self.config.target_hidden_size * 3",
        ),
        (DRAFT,),
        "the width of the draft's first projection",
    ),
    Contract(
        "vllm.model_executor.models.llama_eagle3:LlamaDecoderLayer.__init__",
        Does(
            "norms after the residual unless told otherwise",
            'getattr(config, "norm_before_residual", False)',
        ),
        (DRAFT,),
        "the draft would be run with its norm in another place than in training",
    ),
    Contract(
        "vllm.transformers_utils.configs.speculators.algos:update_eagle3",
        Does(
            "reads the keys of a speculators draft",
            'config_dict.get("draft_vocab_size")',
            'config_dict["target_hidden_size"]',
            'config_dict.get("norm_before_residual", True)',
            'config_dict["eagle_aux_hidden_state_layer_ids"]',
        ),
        (DRAFT,),
        "the exported config.json would be misread; norm_before_residual is True when absent",
    ),
    Contract(
        "vllm.transformers_utils.configs.speculators.base:SpeculatorsConfig",
        Does(
            "reads the envelope of a speculators draft",
            'config_dict["speculators_config"]',
            'config_dict.get("speculators_model_type")',
            'config_dict.get("transformer_layer_config", {})',
            'spec_config["verifier"]["name_or_path"]',
            'first_method["speculative_tokens"]',
        ),
        (DRAFT,),
        "the exported config.json would be refused",
    ),
)
