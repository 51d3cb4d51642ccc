"""What serving a draft relies on in vLLM: its front end, its counters, its proposer, our patches.

Compared with vLLM 0.16.0, patched (third_party/vllm).
"""

from eagle3.draft.served_config import SERVED_FAMILIES
from tests.contract.contract import Contract
from tests.contract.expectations import Call, Does, Has, Inherits
from tests.contract.relying import (
    CAPTURE_POINTS,
    COMMAND_LINE,
    DRAFTING,
    SERVED_CONFIG,
    SERVING,
    V01,
    V02,
    V03,
    V04,
    V05,
    VERIFICATION,
)
from tests.contract.vllm_model_contracts import DEEPSEEK, INTERFACES, KIMI, LLAMA

RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
PROPOSER = "vllm.v1.spec_decode.eagle:SpecDecodeBaseProposer"

FRONT_END = (
    Contract(
        "vllm.entrypoints.cli.main:main",
        Call(),
        (COMMAND_LINE,),
        "vLLM's server is started by this",
    ),
    Contract(
        "vllm.entrypoints.cli.main:main",
        Does("reads its arguments from sys.argv", "parser.parse_args()"),
        (COMMAND_LINE,),
        "the server would start with other arguments",
    ),
    Contract(
        "vllm.engine.arg_utils:EngineArgs.add_cli_args",
        Does("knows --speculative-config", '"--speculative-config"'),
        (COMMAND_LINE,),
        "the server would start without the draft",
    ),
    Contract(
        "vllm.entrypoints.llm:LLM",
        Call(
            "model",
            "dtype=",
            "seed=",
            "tensor_parallel_size=",
            "gpu_memory_utilization=",
            "enforce_eager=",
            "trust_remote_code=",
        ),
        (SERVING,),
        "the target is served by this",
    ),
    Contract(
        "vllm.engine.arg_utils:EngineArgs",
        Has(
            "max_model_len",
            "enable_prefix_caching",
            "disable_log_stats",
            "limit_mm_per_prompt",
            "speculative_config",
        ),
        (SERVING,),
        "what LLM takes beyond its own parameters",
    ),
    Contract(
        "vllm.entrypoints.llm:LLM.get_metrics",
        Call(),
        (SERVING,),
        "what was accepted is read by this",
    ),
    Contract(
        "vllm.entrypoints.llm:LLM.__init__",
        Does("holds its engine as llm_engine", "self.llm_engine = LLMEngine.from_engine_args(...)"),
        (SERVING,),
        "the engine is stopped through it",
    ),
    Contract(
        "vllm.v1.engine.llm_engine:LLMEngine.__init__",
        Does(
            "holds the client of the engine's process as engine_core",
            "self.engine_core = EngineCoreClient.make_client(...)",
        ),
        (SERVING,),
        "the engine is stopped through it",
    ),
    Contract(
        "vllm.v1.engine.core_client:EngineCoreClient.shutdown",
        Call(),
        (SERVING,),
        "the GPU would stay taken by a target that is served no longer",
    ),
    Contract(
        "vllm.sampling_params:SamplingParams",
        Has("temperature", "max_tokens", "seed", "logprobs", "detokenize"),
        (SERVING,),
        "how to generate is said by these",
    ),
    Contract(
        "vllm.outputs:CompletionOutput",
        Has("token_ids", "logprobs"),
        (SERVING,),
        "the answers are read from there",
    ),
)

COUNTERS = (
    Contract(
        "vllm.v1.spec_decode.metrics:SpecDecodingProm.__init__",
        Does(
            "counts drafts and accepted tokens by position, under these names",
            '"vllm:spec_decode_num_drafts"',
            '"vllm:spec_decode_num_accepted_tokens_per_pos"',
        ),
        (SERVING,),
        "acceptance would read as nothing",
    ),
    Contract(
        "vllm.v1.metrics.reader:Counter",
        Has("name", "value"),
        (SERVING,),
        "the number of drafts is read from there",
    ),
    Contract(
        "vllm.v1.metrics.reader:Vector",
        Has("name", "values"),
        (SERVING,),
        "accepted tokens by position are read from there",
    ),
)

PROPOSING = (
    Contract(
        f"{PROPOSER}.propose",
        Does("proposes the draft's argmax", "draft_token_ids = logits.argmax(dim=-1)"),
        (DRAFTING, VERIFICATION),
        "the own loop would draft otherwise than vLLM, and sample by another rule",
    ),
    Contract(
        f"{PROPOSER}.set_inputs_first_pass",
        Does(
            "feeds each row of the target the token after it",
            "self.input_ids[: num_tokens - 1] = target_token_ids[1:]",
        ),
        (DRAFTING,),
        "the own loop would give the draft another token than vLLM does",
    ),
)

PATCHED = (
    Contract(
        f"{INTERFACES}:SupportsEagle3",
        Has("set_aux_hidden_state_layers", "get_eagle3_aux_hidden_state_layers"),
        (V01, V02),
        "the interface that the patched targets implement",
    ),
    Contract(
        f"{RUNNER}.load_model",
        Does(
            "asks the model itself for auxiliary states",
            "supports_eagle3(self.get_model())",
            "self.model.set_aux_hidden_state_layers(aux_layers)",
        ),
        (V01, V02),
        "the patched methods would not be called",
    ),
    Contract(
        f"{DEEPSEEK}:DeepseekV2ForCausalLM",
        Inherits("SupportsEagle3"),
        (V01,),
        "a draft for DeepSeek would be refused when it is loaded",
    ),
    Contract(
        f"{DEEPSEEK}:DeepseekV2Model.forward",
        Does(
            "takes the auxiliary state of index i before layer i",
            """
            for __item in __layers:
                if __index in self.aux_hidden_state_layers:
                    ...
                __stream, residual = layer(...)
            """,
        ),
        (CAPTURE_POINTS, V01),
        "a vLLM auxiliary id would no longer be the capture point of the same number",
    ),
    *(
        Contract(
            f"{stack}.forward",
            Does(
                "takes the state after the last layer, before the norm",
                """
                if len(self.layers) in self.aux_hidden_state_layers:
                    aux_hidden_states.append(hidden_states + residual)
                hidden_states, __residual = self.norm(hidden_states, residual)
                """,
            ),
            (patch,),
            "a draft on the last capture point would be served two states of three",
        )
        for stack, patch in ((f"{DEEPSEEK}:DeepseekV2Model", V01), (f"{LLAMA}:LlamaModel", V05))
    ),
    Contract(
        f"{KIMI}:KimiK25ForConditionalGeneration",
        Inherits("SupportsEagle3"),
        (V02,),
        "a draft for Kimi would be refused when it is loaded",
    ),
    Contract(
        f"{KIMI}:KimiK25ForConditionalGeneration.set_aux_hidden_state_layers",
        Does(
            "passes the layers on",
            "self.language_model.set_aux_hidden_state_layers(layers)",
        ),
        (V02,),
        "the language model would hand out nothing",
    ),
    Contract(
        f"{KIMI}:KimiK25ForConditionalGeneration.forward",
        Does(
            "hands on what its language model gives",
            """
            hidden_states = self.language_model(...)
            return hidden_states
            """,
        ),
        (V02,),
        "auxiliary states would be lost in the wrapper",
    ),
    Contract(
        "vllm.config.speculative:SpeculativeConfig._verify_args",
        Does(
            "serves drafts for these families alone, DeepSeek and Kimi among them",
            f"eagle3_target_supported = [{', '.join(map(repr, SERVED_FAMILIES))}]",
            "supported_model in self.target_model_config.hf_text_config.model_type",
        ),
        (SERVED_CONFIG, V03),
        "a target would be trained for whose draft cannot be served, such as DeepSeek and Kimi",
    ),
    Contract(
        f"{PROPOSER}.load_model",
        Does(
            "knows Kimi's image token by its name",
            "self.model.config.image_token_index = target_model.config.media_placeholder_token_id",
        ),
        (V04,),
        "loading a draft for Kimi would end with an AttributeError",
    ),
    Contract(
        "vllm.transformers_utils.configs.kimi_k25:KimiK25Config",
        Call("media_placeholder_token_id="),
        (V04,),
        "the name of Kimi's image token",
    ),
)
