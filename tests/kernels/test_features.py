import pytest
import torch

from torch_gckm.kernels import DenseFeatures, Laplacian, Views, as_rows


def matrix(n=12, d=3, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=dtype)


class TestSharedEntries:
    @pytest.mark.parametrize(
        ("a", "b"),
        [
            (slice(None), slice(None)),
            (slice(None), torch.tensor([3, 7, 3])),
            (torch.tensor([3, 7, 3]), slice(None)),
            (slice(2, 9), torch.tensor([8, 0, 3, 3, 11])),
            (torch.tensor([5, 5, 1]), torch.tensor([1, 5, 2, 5])),
            (slice(0, 3), slice(6, 9)),
            (slice(0, 12, 3), slice(None)),
            (torch.arange(12) % 5 == 0, slice(3, 11)),
            (torch.tensor([-1, 2]), slice(5, 12)),
        ],
        ids=str,
    )
    def test_finds_every_pair_of_the_same_row(self, a, b):
        x = DenseFeatures(matrix())
        numbers = torch.arange(12)
        left = x if isinstance(a, slice) and a == slice(None) else x.rows(a)
        right = x.detach().to(torch.float32) if isinstance(b, slice) and b == slice(None) else x.rows(b)
        i, j = left.shared_entries(right)
        found = torch.zeros(left.num_rows, right.num_rows, dtype=torch.bool)
        found[i, j] = True
        assert torch.equal(found, numbers[a].unsqueeze(1) == numbers[b])

    def test_rows_of_rows_and_other_matrices(self):
        x = DenseFeatures(matrix())
        i, j = x.rows(slice(2, 9)).rows(torch.tensor([1, 4])).shared_entries(x.rows(torch.tensor([6])))
        assert (i.tolist(), j.tolist()) == ([1], [0])
        i, j = x.rows(slice(5, 10)).rows(torch.tensor([-1])).shared_entries(x)
        assert (i.tolist(), j.tolist()) == ([0], [9])
        assert x.shared_entries(DenseFeatures(matrix())) is None

    def test_a_row_is_at_distance_zero_from_itself_in_every_block(self):
        """In single precision, far from the origin, rounding alone would put it at a distance of about 0.01."""
        x = as_rows(10 * matrix(40, 30, torch.float32))
        marks = torch.tensor([4, 17, 33])
        kernel = Laplacian(1.0)
        columns = torch.cat([kernel(x.rows(block), x.rows(marks)) for block in x.blocks(2**19)])
        assert len(list(x.blocks(2**19))) > 1
        assert columns[marks].diagonal().tolist() == [1.0, 1.0, 1.0]


def test_squared_norms_are_kept_until_the_matrix_changes():
    x = matrix()
    features = DenseFeatures(x)
    torch.testing.assert_close(features.sq_norm(), x.square().sum(dim=1))
    assert features.sq_norm() is features.sq_norm()
    x.mul_(2.0)
    torch.testing.assert_close(features.sq_norm(), x.square().sum(dim=1))


def test_leaves_cut_the_graph_where_gradients_flow():
    x = matrix().requires_grad_()
    rows = Views({"h": x * 2, "x": matrix()})
    leaves = rows.fresh_leaves()
    assert len(rows.inputs()) == len(leaves.inputs()) == 1
    assert leaves.inputs()[0].is_leaf
    assert leaves.view("h").shared_entries(rows.view("h")) is not None


def test_blocks_cover_wide_rows_in_small_pieces():
    x = as_rows(torch.zeros(5000, 1024))
    blocks = list(x.blocks(10))
    assert blocks[0] == slice(0, 2048)
    assert blocks[-1].stop == 5000
    assert x.block(slice(0, 5000)) is x


def test_features_without_gradients_are_their_own_detached_ones():
    """So that a kernel matrix knows its features again."""
    constant, tracked = DenseFeatures(matrix()), DenseFeatures(matrix().requires_grad_())
    assert constant.detach() is constant
    assert not tracked.detach().requires_grad
    views = Views({"h": constant, "x": matrix()})
    assert views.detach().same_as(views)
    assert not Views({"h": tracked}).detach().same_as(Views({"h": tracked}))
