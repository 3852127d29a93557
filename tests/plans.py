"""Plans for tests that need one and not a checkpoint."""

from typing import Any

from workers.families.plan import ImagePlan, first_pass, plain

WHITE = plain((255, 255, 255))


def make_plan(source_size: tuple[int, int], **fields: Any) -> ImagePlan:
    """A plan that leaves an image as it is, (height, width) in pixels, but for `fields`."""
    resized = fields.get("resized_size", source_size)
    defaults: dict[str, Any] = {
        "family": "test",
        "backend": "cpu",
        "source_size": source_size,
        "resized_size": resized,
        "padded_size": resized,
        "grid": (1, 2, 2),
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "patch_order": "merged",
        "num_tokens": 1,
        "attention_patches": 6608,
        "resample": "bicubic",
        "first_pass": first_pass(source_size, resized),
        "rescale": 1 / 255,
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
        "background": WHITE,
    }
    return ImagePlan(**(defaults | fields))
