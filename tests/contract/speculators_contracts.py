"""What the engine and an exported draft rely on in speculators; compared with 0.3.0, patched."""

from tests.contract.contract import Contract
from tests.contract.expectations import Call, Default, Does, Has, Inherits, Is
from tests.contract.relying import (
    BASELINES,
    CAPTURE_POINTS,
    DRAFT,
    GENERATOR,
    P17,
    P20,
    P21,
    P24,
    PEER,
    PEER_TRAINING,
)

CLASS = "speculators.data_generation:VllmHiddenStatesGenerator"

GENERATION = (
    Contract(
        CLASS,
        Call(
            "model_path",
            "layer_ids",
            "max_model_len=",
            "gpu_memory_utilization=",
            "tensor_parallel_size=",
            "max_num_batched_tokens=",
            "model_options=",
            "cache_options=",
            "load_options=",
            "compilation_options=",
        ),
        (BASELINES, P20),
        "the old road starts the target by this; the last five are patched in",
    ),
    Contract(
        f"{CLASS}.generate",
        Call("token_ids"),
        (BASELINES,),
        "the old road runs a batch by this",
    ),
    Contract(
        f"{CLASS}.generate",
        Does(
            "returns a dict with input_ids and hidden_states for each prompt",
            """
            results.append(
                {"input_ids": ..., "hidden_states": ..., "loss_mask": None}
            )
            """,
            "return results",
        ),
        (BASELINES,),
        "the old road saves the states from there",
    ),
    Contract(
        f"{CLASS}.generate",
        Does("refuses a prompt by ValueError", "raise ValueError(...)"),
        (BASELINES,),
        "what is refused before it is run",
    ),
    Contract(
        f"{CLASS}.shutdown",
        Call(),
        (BASELINES, P21),
        "the workers would outlive the old road",
    ),
    Contract(
        "speculators.data_generation.custom_worker:HiddenStatesWorkerExtension",
        Has("_setup_hidden_states_capture", "_execute_step"),
        (GENERATOR,),
        "called by name in the workers",
    ),
    Contract(
        "speculators.data_generation.custom_worker:HiddenStatesWorkerExtension._execute_step",
        Does(
            "hands the layers over in the order asked for",
            """
            __states = [__state for i in self._layer_ids]
            ...
            return __ids, __states
            """,
        ),
        (BASELINES, P17),
        "layers are known by their order",
    ),
    Contract(
        "speculators.data_generation.custom_worker:EMBEDDING_OUTPUT",
        Is("-1"),
        (CAPTURE_POINTS, P24),
        "the layer index that stands for capture point 0",
    ),
)

EXPORT = (
    Contract(
        "speculators.models.eagle3:Eagle3DraftModel",
        Call("config", "t2d", "d2t"),
        (DRAFT, PEER),
        "the draft is made by this",
    ),
    Contract(
        "speculators.models.eagle3:Eagle3DraftModel.forward",
        Call(
            "hidden_states=",
            "input_ids=",
            "lengths=",
            "loss_mask=",
            "position_ids=",
            "verifier_last_hidden_states=",
            "ttt_steps=",
        ),
        (PEER,),
        "bench_train measures a training step of it beside ours",
    ),
    Contract(
        "speculators.models.eagle3:Eagle3DraftModel.__init__",
        Does(
            "projects three states of the target to one",
            "torch.nn.Linear(3 * self.hidden_size, self.hidden_size, bias=False)",
            'self.register_buffer("t2d", t2d)',
            'self.register_buffer("d2t", d2t)',
        ),
        (DRAFT,),
        "names and shapes of the draft's weights",
    ),
    Contract(
        "speculators.models.eagle3:Eagle3SpeculatorConfig",
        Has(
            "transformer_layer_config",
            "draft_vocab_size",
            "norm_before_residual",
            "target_hidden_size",
            "eagle_aux_hidden_state_layer_ids",
        ),
        (DRAFT,),
        "what the draft's config.json is written from",
    ),
    Contract(
        "speculators.models.eagle3:Eagle3SpeculatorConfig.speculators_model_type",
        Default("'eagle3'"),
        (DRAFT,),
        "the key by which vLLM knows the draft",
    ),
    Contract(
        "speculators.models.eagle3:Eagle3SpeculatorConfig.norm_before_residual",
        Default("False"),
        (DRAFT,),
        "vLLM takes True where the key is absent: it must be written out",
    ),
    Contract(
        "speculators.models.eagle3:Eagle3SpeculatorConfig.eagle_aux_hidden_state_layer_ids",
        Default("None"),
        (DRAFT,),
        "vLLM serves its own defaults where the key is absent: it must be written out",
    ),
    Contract(
        "speculators.models.eagle3:Eagle3SpeculatorConfig",
        Inherits("SpeculatorModelConfig"),
        (DRAFT,),
        "the envelope of the draft's config.json",
    ),
    Contract(
        "speculators.config:SpeculatorsConfig",
        Call("algorithm=", "proposal_methods=", "default_proposal_method=", "verifier="),
        (DRAFT,),
        "the envelope of the draft's config.json",
    ),
    Contract(
        "speculators.config:VerifierConfig",
        Call("name_or_path=", "architectures="),
        (DRAFT,),
        "the target that the draft belongs to",
    ),
    Contract(
        "speculators.proposals.greedy:GreedyTokenProposalConfig",
        Has("speculative_tokens"),
        (DRAFT,),
        "how many tokens the draft proposes when served",
    ),
)

SAMPLER = "speculators.train.distributed_batch_sampler:MultipackDistributedBatchSamplerV2"

TRAINING = (
    Contract(
        "speculators.train.trainer:Trainer",
        Call("model", "config", "train_loader"),
        (PEER_TRAINING,),
        "train_peer trains speculators' draft by this",
    ),
    Contract(
        "speculators.train.trainer:TrainerConfig",
        Has(
            "lr",
            "num_epochs",
            "save_path",
            "local_rank",
            "train_call_kwargs",
            "scheduler_type",
            "scheduler_warmup_steps",
            "scheduler_total_steps",
        ),
        (PEER_TRAINING,),
        "what train_peer asks of it",
    ),
    Contract(
        "speculators.train.trainer:Trainer.train_epoch",
        Does(
            "logs the metrics of each step, the loss among them",
            'metric_logger.info({"train": metrics, "epoch": epoch, "lr": current_lr}, extra=...)',
        ),
        (PEER_TRAINING,),
        "train_peer reports the last loss",
    ),
    Contract(
        "speculators.train.data:shift_batch",
        Call("batch"),
        (PEER_TRAINING,),
        "rows are shifted as speculators shifts them",
    ),
    Contract(
        "speculators.train.data:create_collate_fn",
        Call("max_len"),
        (PEER_TRAINING,),
        "samples are packed as speculators packs them",
    ),
    Contract(
        SAMPLER,
        Call("batch_max_length", "lengths", "num_replicas", "rank", "seed="),
        (PEER_TRAINING,),
        "samples are packed as speculators packs them",
    ),
    Contract(
        SAMPLER,
        Has("set_epoch", "__iter__"),
        (PEER_TRAINING,),
        "its epochs are gone through one after the other",
    ),
    Contract(
        "speculators.train.data:Eagle3SampleFileDataset.__getitem__",
        Does(
            "gives each sample its length, its positions from 0, and shifts it last",
            'data["lengths"] = torch.tensor([seq_len], dtype=torch.long)',
            'data["position_ids"] = torch.arange(seq_len, dtype=torch.long)',
            "return shift_batch(data)",
        ),
        (PEER_TRAINING,),
        "a sample of our store takes the same way",
    ),
    Contract(
        "speculators.train.noise_transforms:AddUniformNoise",
        Inherits("TransformTensors"),
        (PEER_TRAINING,),
        "states get noise as speculators gives it",
    ),
    Contract(
        "speculators.train.noise_transforms:TransformTensors",
        Call("std", "tensors"),
        (PEER_TRAINING,),
        "AddUniformNoise is made by this",
    ),
)
