"""What is read from vLLM's files without importing it; compared with 0.16.0."""

from tests.contract.contract import Contract
from tests.contract.expectations import Does
from tests.contract.relying import INSTALLED

REGISTRY = "vllm.model_executor.models.registry"

FILES = (
    Contract(
        f"{REGISTRY}:_TEXT_GENERATION_MODELS",
        Does("lists architectures by name", '"LlamaForCausalLM"', '"DeepseekV3ForCausalLM"'),
        (INSTALLED,),
        "the preflight would refuse targets that run",
    ),
    Contract(
        f"{REGISTRY}:_MULTIMODAL_MODELS",
        Does("lists architectures by name", '"KimiK25ForConditionalGeneration"'),
        (INSTALLED,),
        "the preflight would refuse the reference target",
    ),
    Contract(
        "vllm.model_executor.layers.quantization:QuantizationMethods",
        Does("lists the methods by name", '"compressed-tensors"', '"mxfp4"'),
        (INSTALLED,),
        "the preflight would refuse quantised targets that run",
    ),
    Contract(
        "vllm.model_executor.model_loader.weight_utils:_natural_sort_key",
        Does("takes numbers in names as numbers", 're.split("(\\\\d+)", os.path.basename(...))'),
        (INSTALLED,),
        "weights would be fetched in another order than they are loaded",
    ),
    Contract(
        "vllm.model_executor.model_loader.weight_utils:safetensors_weights_iterator",
        Does("reads the files in that order", "sorted(hf_weights_files, key=_natural_sort_key)"),
        (INSTALLED,),
        "weights would be fetched in another order than they are loaded",
    ),
)
