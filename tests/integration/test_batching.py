"""A text's answer depends neither on its neighbours nor on when it comes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import Closeness
from tests.conftest import Server
from tests.integration.protocols import infer, label
from text_pipeline.default_model import corpus
from text_pipeline.export.gate import pytorch_outputs
from text_pipeline.export.source import Source

POOL = corpus.mixed(40, seed=4)


def test_concurrent_requests_get_their_own_answers(
    server: Server, reference: Source, closeness: Closeness
) -> None:
    with ThreadPoolExecutor(len(POOL)) as executor:
        answers = list(executor.map(lambda text: infer(server, "grpc", [text]), POOL))
    for answer, expected in zip(answers, pytorch_outputs(reference, POOL), strict=True):
        closeness.check(answer["logits"][0], expected["logits"], 1e-4)


@settings(max_examples=20, deadline=None)
@given(rows=st.lists(st.sampled_from(range(len(POOL))), min_size=1, max_size=16))
def test_answer_alone_is_the_answer_in_a_batch(
    server: Server, reference: Source, closeness: Closeness, rows: list[int]
) -> None:
    together = infer(server, "grpc", [POOL[row] for row in rows])
    row = rows[len(rows) // 2]
    alone = infer(server, "grpc", [POOL[row]])
    position = len(rows) // 2
    closeness.check(together["logits"][position], alone["logits"][0], 1e-5)
    named = [label(name) for name in together["labels"][position]]
    closeness.check_order(named, reference.labels, alone["probabilities"][0])


def test_requests_of_different_sizes_and_limits_share_batches(
    server: Server, closeness: Closeness
) -> None:
    sizes = [1, 2, 5, 1, 8, 3, 1, 4]
    starts = np.cumsum([0, *sizes[:-1]])
    limits = [None, 8, None, 16, 512, 8, 3, None]

    def ask(index: int) -> dict[str, np.ndarray]:
        texts = POOL[starts[index] : starts[index] + sizes[index]]
        parameters = {"max_tokens": limits[index]} if limits[index] else None
        return infer(server, "grpc", texts, parameters=parameters)

    with ThreadPoolExecutor(len(sizes)) as executor:
        together = list(executor.map(ask, range(len(sizes))))
    for index, answer in enumerate(together):
        alone = ask(index)
        closeness.check(answer["logits"], alone["logits"], 1e-5)
        np.testing.assert_array_equal(answer["token_count"], alone["token_count"])
