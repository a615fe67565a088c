from stages.store.layout import StagePaths, attempt_epoch, attempt_name, run_folder, salt_path


def test_every_path_is_where_the_layout_says() -> None:
    paths = StagePaths("sft", "k")
    attempt = paths.attempt(attempt_name(2, "u"))
    assert [paths.spec, paths.lease, paths.manifest, paths.bad_manifest(3)] == [
        "v1/stages/sft/k/spec.json",
        "v1/stages/sft/k/lease.json",
        "v1/stages/sft/k/manifest.json",
        "v1/stages/sft/k/manifest.bad-3.json",
    ]
    prefix = "v1/stages/sft/k/attempts/000002-u/"
    assert [
        attempt.record,
        attempt.progress(10),
        attempt.progress_commit(10),
        attempt.out("checkpoint"),
        attempt.metrics(4),
        attempt.log(4),
    ] == [
        prefix + "attempt.json",
        prefix + "progress/10",
        prefix + "progress/10.commit.json",
        prefix + "out/checkpoint",
        prefix + "metrics/000004.jsonl",
        prefix + "log/000004.txt",
    ]
    assert run_folder("smoke", 2026, "r") == "v1/runs/smoke/2026/r"
    assert salt_path("k") == "v1/salts/k.json"


def test_attempts_sort_by_epoch() -> None:
    names = [attempt_name(epoch, unique) for epoch, unique in ((1, "f"), (2, "a"), (10, "0"))]
    assert sorted(names) == names
    assert [attempt_epoch(name) for name in names] == [1, 2, 10]
