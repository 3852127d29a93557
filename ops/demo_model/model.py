"""The model and its training losses: transformers' own forward, plus small heads dropped at export.

The heads predict dense labels: of each patch from the tower, of each merged token through the word
embeddings of its colour, shape and digit (so that copying is nearly linear), and, inside the
decoder, which image a token belongs to, whether an object has a twin in the first image and how
many objects of its shape and of its colour come before it.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor, nn
from transformers import AttentionInterface, Qwen3VLForConditionalGeneration

from ops.demo_model import labels
from ops.demo_model.batches import Batch
from ops.demo_model.rows import Vocabulary
from ops.demo_model.scenes import COLOURS, SHAPES

WORD_LABELS = (labels.COLOUR, labels.SHAPE, labels.DIGIT)
PATCH_HEAD_WEIGHTS = (1.0, 1.0, 1.0, 0.4, 0.7, 1.0, 0.5)  # one per label
CELL_HEAD_WEIGHTS = {labels.PLACE: 0.4, labels.REGION: 0.7, labels.CENTRE: 0.7, labels.COUNT: 0.5}
MAX_THINGS = 4
NOTHING_WEIGHT = 0.15  # of class 0, which most patches have


@dataclass(frozen=True, slots=True)
class Losses:
    """One step's losses, scalars, and the share of answer tokens predicted right."""

    answers: Tensor
    patches: Tensor
    twins: Tensor
    ranks: Tensor
    accuracy: float


class Learner(nn.Module):
    """The checkpoint's model with the training heads around it."""

    def __init__(self, model: Qwen3VLForConditionalGeneration, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.model = model
        hidden_size = model.config.text_config.hidden_size
        num_cell_classes = sum(labels.NUM_CLASSES[index] for index in CELL_HEAD_WEIGHTS)
        self.patch_head = nn.Linear(model.config.vision_config.hidden_size, sum(labels.NUM_CLASSES))
        self.cell_head = nn.Linear(hidden_size, num_cell_classes)
        self.nothing_head = nn.Linear(hidden_size, len(WORD_LABELS))
        self.pair_head = nn.Linear(hidden_size, 4)
        self.rank_head = nn.Linear(hidden_size, 2 * MAX_THINGS)
        self.word_scale = nn.Parameter(torch.tensor(2.0))
        words = ([f" {word}" for word in COLOURS], [f" {word}" for word in SHAPES], "0123456789")
        for index, group in enumerate(words):
            ids = [vocabulary.encode(word) for word in group]
            if any(len(word_ids) != 1 for word_ids in ids):
                raise ValueError(f"every one of {list(group)} must be one token")
            self.register_buffer(f"words_{index}", torch.tensor(ids)[:, 0], persistent=False)

    def forward(self, batch: Batch, pictures_only: bool = False) -> Losses:
        """All losses of a batch; with `pictures_only` the decoder is not run."""
        tower = self.model.model.visual(batch.pixel_values, grid_thw=batch.grid)
        cells = tower.pooler_output  # [cells, hidden]
        patches = self._patch_loss(tower.last_hidden_state, batch.patch_labels)
        patches = patches + self._cell_loss(cells, batch.cell_labels)
        if pictures_only:
            zero = patches.new_zeros(())
            return Losses(zero, patches, zero, zero, 0.0)
        states = self._decode(batch, cells, tower.deepstack_features)
        answers, accuracy = self._answer_loss(batch, states[-1])
        twins, ranks = self._twin_loss(batch, states), self._rank_loss(batch, states[1])
        return Losses(answers, patches, twins, ranks, accuracy)

    def _decode(self, batch: Batch, cells: Tensor, deepstack: list[Tensor]) -> tuple[Tensor, ...]:
        """Hidden states after each decoder layer and the final norm, [rows, length, hidden]."""
        decoder = self.model.model.language_model
        is_image = batch.ids == self.model.config.image_token_id
        embeddings = decoder.embed_tokens(batch.ids)
        shown = cells[batch.cell_order]
        embeddings = embeddings.masked_scatter(is_image[..., None], shown)
        output = decoder(
            inputs_embeds=embeddings,
            attention_mask=_as_bias(batch.visible, embeddings.dtype),
            position_ids=batch.positions,
            visual_pos_masks=is_image,
            deepstack_visual_embeds=[features[batch.cell_order] for features in deepstack],
            use_cache=False,
            output_hidden_states=True,
        )
        return (*output.hidden_states[1:-1], output.last_hidden_state)

    def _answer_loss(self, batch: Batch, states: Tensor) -> tuple[Tensor, float]:
        rows, columns = torch.nonzero(batch.weights, as_tuple=True)
        weights = batch.weights[rows, columns]
        targets = batch.ids[rows, columns]
        logits = self.model.lm_head(states[rows, columns - 1]).float()
        loss = F.cross_entropy(logits, targets, reduction="none")
        accuracy = (logits.argmax(-1) == targets).float().mean().item()
        return (loss * weights).sum() / weights.sum(), accuracy

    def _patch_loss(self, patches: Tensor, targets: Tensor) -> Tensor:
        logits = self.patch_head(patches).float().split(labels.NUM_CLASSES, dim=-1)
        total = torch.zeros(())
        for index, weight in enumerate(PATCH_HEAD_WEIGHTS):
            total = total + weight * _rare_class_loss(logits[index], targets[index])
        return total

    def _cell_loss(self, cells: Tensor, targets: Tensor) -> Tensor:
        normed = _unit_rms(cells)
        embedding = self.model.model.language_model.embed_tokens.weight
        nothing = self.nothing_head(normed)
        total = torch.zeros(())
        for index, kind in enumerate(WORD_LABELS):
            words = embedding[self.get_buffer(f"words_{index}")]
            scores = F.linear(normed, words) * self.word_scale
            logits = torch.cat((nothing[:, index : index + 1], scores), dim=1).float()
            total = total + _rare_class_loss(logits, targets[kind])
        sizes = [labels.NUM_CLASSES[kind] for kind in CELL_HEAD_WEIGHTS]
        parts = self.cell_head(normed).float().split(sizes, dim=-1)
        for logits, (kind, weight) in zip(parts, CELL_HEAD_WEIGHTS.items(), strict=True):
            total = total + weight * _rare_class_loss(logits, targets[kind])
        return total

    def _twin_loss(self, batch: Batch, states: tuple[Tensor, ...]) -> Tensor:
        """Which image (after layer 1) and whether image 1 has the same (after layer 2)."""
        is_image = batch.ids == self.model.config.image_token_id
        which = self.pair_head(_unit_rms(states[0][is_image])).float()[:, :2]
        loss = F.cross_entropy(which, batch.ordinals)
        if not bool((batch.twins >= 0).any()):
            return loss
        twin = self.pair_head(_unit_rms(states[1][is_image])).float()[:, 2:]
        return loss + F.cross_entropy(twin, batch.twins, ignore_index=-100)

    def _rank_loss(self, batch: Batch, states: Tensor) -> Tensor:
        """How many of its shape and of its colour were before (after layer 2)."""
        if not bool((batch.ranks >= 0).any()):
            return states.new_zeros(())
        is_image = batch.ids == self.model.config.image_token_id
        logits = self.rank_head(_unit_rms(states[is_image])).float().split(MAX_THINGS, dim=-1)
        losses = [
            F.cross_entropy(scores, targets, ignore_index=labels.UNASKED)
            for scores, targets in zip(logits, batch.ranks, strict=True)
        ]
        return torch.stack(losses).sum()


def register_attention() -> str:
    """Make transformers' attention by this name; on a CPU it trains faster than the fused one."""
    AttentionInterface.register("demo_plain", _plain_attention)
    return "demo_plain"


def _plain_attention(  # the signature is the library's
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **_: object,
) -> tuple[Tensor, None]:
    """Queries, keys, values [batch, heads, length, width]; gives [batch, length, heads, width]."""
    scores = (query * scaling) @ key.mT
    if attention_mask is not None:
        scores = scores + attention_mask
    return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None


def _as_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """What to add to the scores: [rows, 1, length, length]."""
    return torch.where(visible[:, None], 0.0, -1e9).to(dtype)


def _rare_class_loss(logits: Tensor, targets: Tensor) -> Tensor:
    weights = torch.ones(logits.shape[-1])
    weights[0] = NOTHING_WEIGHT
    return F.cross_entropy(logits, targets, weight=weights)


def _unit_rms(states: Tensor) -> Tensor:
    return F.rms_norm(states, states.shape[-1:])
