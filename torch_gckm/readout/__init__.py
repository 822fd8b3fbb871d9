"""The semi-supervised readout: targets, the linear system and its solutions, leave-out scores, p-values."""

from torch_gckm.readout.conformal import Machine, label_weights, p_values, sets_of
from torch_gckm.readout.leave_out import leverage_of, places_of, solve_for, withheld_in_groups, withheld_one_by_one
from torch_gckm.readout.problem import ReadoutProblem, ReadoutSolution, dual_objective
from torch_gckm.readout.solutions import ExactSolution, LowRankSolution, solve
from torch_gckm.readout.targets import (
    ClassWeight,
    CodeLike,
    Targets,
    class_codes,
    class_similarity,
    count_classes,
    decode,
    labels_of,
    pick_mask,
)
from torch_gckm.readout.updates import AddedLabels, step_of
from torch_gckm.readout.values import VALUES, RealTargets, check_classes, check_values, is_values, kind_of_targets

__all__ = [
    "VALUES", "AddedLabels", "ClassWeight", "CodeLike", "ExactSolution", "LowRankSolution", "Machine",
    "ReadoutProblem", "ReadoutSolution", "RealTargets", "Targets", "check_classes", "check_values", "class_codes",
    "class_similarity", "count_classes", "decode", "dual_objective", "is_values", "kind_of_targets",
    "label_weights", "labels_of", "leverage_of", "p_values", "pick_mask", "places_of", "sets_of", "solve",
    "solve_for", "step_of", "withheld_in_groups", "withheld_one_by_one",
]  # fmt: skip
