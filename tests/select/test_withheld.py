import torch

from torch_gckm.select.withheld import groups_to_withhold


def test_groups_have_one_node_of_every_class_with_several():
    classes = torch.tensor([2, 0, 0, 1, 2, 2, 1, 4])
    groups = groups_to_withhold(classes, 30)
    assert groups.shape == (30, 3)
    assert torch.equal(classes[groups], torch.tensor([0, 1, 2]).expand(30, 3))
    assert groups.unique().numel() == 7
    assert torch.equal(groups, groups_to_withhold(classes, 30))
    assert groups_to_withhold(torch.arange(3), 5).shape == (5, 0)
