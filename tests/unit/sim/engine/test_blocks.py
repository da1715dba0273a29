"""The block pool: vLLM's order of reuse."""

from pointsman.sim.engine.blocks import BlockPool


def test_blocks_come_back_tail_first_and_the_oldest_is_taken_first() -> None:
    gone: list[int] = []
    pool = BlockPool(4, removed=gone.append)
    pool.take(3)
    assert [pool.name(key) for key in (1, 2, 3)] == [True, True, True]
    pool.release([1, 2, 3], anonymous=0)
    assert (pool.used, pool.free) == (0, 4)
    pool.take(3)  # the fresh one, then the tail of what came back
    assert gone == [3, 2]
    assert pool.hits([1, 2, 3], limit=3) == 1


def test_only_a_contiguous_prefix_is_a_hit() -> None:
    pool = BlockPool(4)
    pool.take(2)
    pool.name(1)
    pool.name(3)
    assert pool.hits([1, 2, 3], limit=3) == 1


def test_a_shared_block_is_free_when_the_last_holder_leaves() -> None:
    pool = BlockPool(2)
    pool.take(1)
    pool.name(7)
    pool.pin([7])
    pool.release([7], anonymous=0)
    assert pool.used == 1
    pool.release([7], anonymous=0)
    assert pool.used == 0 and pool.hits([7], limit=1) == 1


def test_pinning_idle_blocks_uses_up_room() -> None:
    pool = BlockPool(2)
    pool.take(1)
    pool.name(7)
    pool.release([7], anonymous=0)
    assert pool.fits([7], new=1) and not pool.fits([7], new=2) and pool.fits([], new=2)


def test_clearing_forgets_what_nobody_holds() -> None:
    pool = BlockPool(3)
    pool.take(2)
    pool.name(1)
    pool.name(2)
    pool.release([2], anonymous=0)
    assert pool.clear() == 1
    assert pool.hits([1], limit=1) == 1 and pool.hits([2], limit=1) == 0
    assert pool.used + pool.free == 3
