"""Each scheduler against a case of eight requests that was traced by hand, step by step; and what holds of all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulate.fixed import FixedTimes

from tonnage.simulate.arrivals import Requests
from tonnage.simulate.batching.prompts_first import PromptsFirst
from tonnage.simulate.batching.replica import Job
from tonnage.simulate.batching.slots import Slots
from tonnage.simulate.batching.token_budget import TokenBudget
from tonnage.simulate.replay import replay, replay_clients

# Arrival, tokens of the prompt, tokens of the answer.
EIGHT = ((0, 5, 3), (0, 6, 2), (0, 2, 4), (0, 4, 1), (2.5, 3, 2), (2.5, 8, 2), (10, 1, 1), (10, 9, 2))


def served(replica, jobs=EIGHT):
    """First token and end of each request."""
    kept = []
    for arrival, prompt, answer in jobs:
        replica.advance(arrival)
        kept.append(Job(arrival, prompt, answer))
        replica.submit(kept[-1])
    replica.advance(float("inf"))
    return [(job.first_token_seconds, job.finish_seconds) for job in kept]


def test_a_budget_of_tokens_traced_by_hand():
    """Three seats, eight tokens a step. Of each step: what is read, who generates.

    0-1: R1 5, R2 3. 1-2: R1; R2 3, R3 2. 2-3: R1, R2, R3; R1 and R2 end. 3-4: R3; R4 4, R5 3; R4 ends. 4-5: R3, R5;
    R6 6; R3 and R5 end. 5-6: R6 2. 6-7: R6 ends. 10-11: R7 1, R8 7; R7 ends. 11-12: R8 2. 12-13: R8 ends.
    """
    replica = TokenBudget(FixedTimes(), num_blocks=8, block_tokens=4, max_num_seqs=3, max_batched_tokens=8)
    assert served(replica) == [(1, 3), (2, 3), (2, 5), (4, 4), (4, 5), (6, 7), (11, 11), (12, 13)]
    assert (replica.num_steps, replica.num_preemptions, replica.busy_seconds) == (10, 0, 10.0)


def test_who_came_last_is_put_back_when_blocks_run_out():
    """Two prompts of seven tokens fill four blocks of four; at the third step each wants one more.

    The second gives its two blocks back with two tokens said; it reads nine tokens again once the first has ended.
    """
    replica = TokenBudget(FixedTimes(), num_blocks=4, block_tokens=4, max_num_seqs=4, max_batched_tokens=32)
    assert served(replica, ((0, 7, 6), (0, 7, 4))) == [(1, 6), (1, 8)]
    assert replica.num_preemptions == 1


def test_who_keeps_room_to_the_end_is_never_put_back():
    """Each wants ten or twelve tokens in the end: three blocks of four, so the second waits for the first."""
    replica = TokenBudget(
        FixedTimes(), num_blocks=4, block_tokens=4, max_num_seqs=4, max_batched_tokens=32, keeps_room=True
    )
    assert served(replica, ((0, 7, 6), (0, 7, 4))) == [(1, 6), (7, 10)]
    assert replica.num_preemptions == 0


def test_prompts_first_traced_by_hand():
    """Three seats, chunks of eight tokens; a step that ends a prompt takes two seconds, any other one.

    0-2: R1 5, R2 3. 2-4: R2 3, R3 2. 4-5: all; R2 ends. 5-7: R4 4, which ends. 7-9: R5 3. 9-10: all; R1 and R5 end.
    10-12: R6 8. 12-14: R7 1, which ends. 14-15: R8 8. 15-17: R8 1. 17-18: all; R3, R6 and R8 end.
    """
    replica = PromptsFirst(FixedTimes(), num_tokens=40, max_num_seqs=3, chunk_tokens=8)
    assert served(replica) == [(2, 10), (4, 5), (4, 18), (7, 7), (9, 10), (12, 18), (14, 14), (17, 18)]
    assert replica.num_preemptions == 0


def test_the_shortest_answer_is_put_back():
    """Both are taken in, as of the first's 19 tokens to come 70 % are expected; 44 places do not hold 5 + 4 + 2 * 19.

    After 17 steps 43 are cached and both have said 18 tokens: of those alike the longer prompt goes, the first.
    The second ends at 23; the first reads its 23 tokens again in three chunks (23-24, 24-25, 25-27) and says its last.
    """
    replica = PromptsFirst(FixedTimes(), num_tokens=44, max_num_seqs=4, chunk_tokens=8)
    assert served(replica, ((0, 5, 20), (0.5, 4, 20))) == [(2, 28), (4, 23)]
    assert replica.num_preemptions == 1


def test_slots_traced_by_hand():
    """Three slots, a batch of eight tokens; the steps are those of the budget of tokens, as the seats are.

    R4 and R5 take the slots of R1 and R2, R6 that of R4; R7 and R8 those used longest ago, of R5 and R3.
    """
    replica = Slots(FixedTimes(), num_slots=3, slot_tokens=16, batch_tokens=8)
    assert served(replica) == [(1, 3), (2, 3), (2, 5), (4, 4), (4, 5), (6, 7), (11, 11), (12, 13)]


def test_slots_read_prompts_in_their_own_order_not_that_of_arrival():
    """R3 ends first and frees slot 2 for R4; the later R5 gets slot 0 and is read before it."""
    jobs = ((0, 1, 2), (0, 1, 9), (0, 1, 1), (0.5, 8, 1), (1.5, 8, 1))
    ended = served(Slots(FixedTimes(), num_slots=3, slot_tokens=16, batch_tokens=4), jobs)
    assert ended[4][0] < ended[3][0]


MAKERS = {
    "budget": lambda: TokenBudget(FixedTimes(), num_blocks=16, block_tokens=4, max_num_seqs=4, max_batched_tokens=16),
    "room": lambda: TokenBudget(
        FixedTimes(), num_blocks=16, block_tokens=4, max_num_seqs=4, max_batched_tokens=16, keeps_room=True
    ),
    "prompts": lambda: PromptsFirst(FixedTimes(), num_tokens=64, max_num_seqs=4, chunk_tokens=16),
    "slots": lambda: Slots(FixedTimes(), num_slots=4, slot_tokens=64, batch_tokens=16),
}
LOADS = st.lists(st.tuples(st.floats(0, 30), st.integers(1, 40), st.integers(1, 24)), min_size=1, max_size=40).map(
    lambda rows: Requests(
        arrival_seconds=tuple(sorted(row[0] for row in rows)),
        input_tokens=tuple(row[1] for row in rows),
        output_tokens=tuple(row[2] for row in rows),
    )
)


@pytest.mark.parametrize("maker", MAKERS)
@given(load=LOADS, num_replicas=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_every_request_ends_once_and_no_token_is_lost(maker, load, num_replicas):
    replicas = [MAKERS[maker]() for _ in range(num_replicas)]
    out = replay(load, replicas)
    assert out.num_finished == len(load)
    assert out.num_refused == 0
    assert (out.input_tokens, out.output_tokens) == (sum(load.input_tokens), sum(load.output_tokens))
    jobs = [job for replica in replicas for job in replica.finished]
    assert len({id(job) for job in jobs}) == len(load)
    for job in jobs:
        assert job.arrival_seconds < job.first_token_seconds <= job.finish_seconds
        assert job.finish_seconds - job.first_token_seconds >= job.output_tokens - 1 - 1e-6
        assert job.num_generated == job.output_tokens
    for replica in replicas:
        assert replica.num_present == 0
        assert replica._used_tokens() == 0  # whatever was taken was given back
        assert replica.most_used_tokens <= replica.cache_tokens


@pytest.mark.parametrize("maker", MAKERS)
def test_a_request_that_can_never_end_is_refused_not_served_for_ever(maker):
    load = Requests(arrival_seconds=(0.0, 0.0), input_tokens=(60, 3), output_tokens=(30, 3))
    out = replay(load, [MAKERS[maker]()])
    assert (out.num_finished, out.num_refused) == (1, 1)


@pytest.mark.parametrize("maker", MAKERS)
def test_many_steps_at_once_are_the_same_as_one_by_one(maker):
    """A replica that is looked at after every step ends as one that runs through."""
    jobs = [(float(at), 3 + at % 7, 2 + at % 11) for at in range(0, 40, 2)]
    through = served(MAKERS[maker](), jobs)
    replica, kept = MAKERS[maker](), []
    for arrival, prompt, answer in jobs:
        while replica.clock_seconds < arrival:
            replica.advance(min(arrival, replica.clock_seconds + 0.5))
        kept.append(Job(arrival, prompt, answer))
        replica.submit(kept[-1])
    while replica.num_present:
        replica.advance(replica.clock_seconds + 0.5)
    assert [(job.first_token_seconds, job.finish_seconds) for job in kept] == through


def test_clients_keep_so_many_in_flight():
    out = replay_clients(MAKERS["slots"](), num_clients=4, num_requests=40, input_tokens=4, output_tokens=8)
    assert out.num_finished == 40
    assert out.mean_running == pytest.approx(4.0, rel=0.05)


def test_a_machine_taken_away_gives_its_requests_up_whole():
    replica = MAKERS["budget"]()
    for prompt in (5, 6, 7, 8, 9):
        replica.submit(Job(0.0, prompt, 6))
    replica.advance(3.0)
    jobs = replica.take_back()
    assert len(jobs) == 5
    assert all(job.num_generated == job.num_read == 0 and job.first_token_seconds is None for job in jobs)
    assert replica.num_present == replica._used_tokens() == 0
