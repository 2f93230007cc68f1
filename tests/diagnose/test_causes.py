"""The cause apart from its consequences: hard cases, all written for this test."""

from __future__ import annotations

import pytest

OOM = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB"
    " of which 1.10 GiB is free. Of the allocated memory 76.10 GiB is allocated by PyTorch, and 201.00 MiB is reserved by"
    " PyTorch but unallocated."
)


def watchdog(rank: int, *, seq: int = 41, enqueued: int = 43, done: int = 40) -> str:
    return "\n".join((
        (f"[rank{rank}]:[E1130 10:10:00.{rank} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout:"
        f" WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600021 milliseconds before timing out."),
        (f"[rank{rank}]:[E1130 10:10:00.{rank} ProcessGroupNCCL.cpp:1834] [PG ID 0 PG GUID 0 Rank {rank}] Exception (either an error or timeout)"
        f" detected by watchdog at work: {seq}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {done}."),
        f"[rank{rank}]:[E1130 10:10:01.{rank} ProcessGroupNCCL.cpp:688] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
    ))  # fmt: skip


SUMMARY = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_10:10:02
  rank      : 0 (local_rank: 0)
  exitcode  : -6 (pid: 4711)
  traceback : Signal 6 (SIGABRT) received by PID 4711"""
REMOTE = "[rank{rank}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."


def ids(diagnosis) -> list[str]:
    return [one.id for one in diagnosis.findings]


def led_to(diagnosis) -> set[str]:
    return {one.id for one in diagnosis.findings[0].consequences}


def test_a_time_out_on_all_ranks_whose_cause_is_a_shortage_on_one(diagnose):
    answer = diagnose(
        logs__rank_0=watchdog(0),
        logs__rank_1=watchdog(1),
        logs__rank_2=watchdog(2),
        logs__rank_3=OOM + "\n" + REMOTE.format(rank=3),
        logs__launcher=SUMMARY,
    )
    assert ids(answer) == ["TORCH_OOM"]
    assert answer.findings[0].ranks == (3,)
    assert {"NCCL_WATCHDOG_TIMEOUT", "NCCL_REMOTE_ERROR", "ELASTIC_CHILD_FAILED", "ELASTIC_SIGABRT"} <= led_to(answer)


def test_a_shortage_after_the_time_out_on_the_same_rank_is_no_cause_of_it(diagnose):
    late = OOM.replace("[rank3]: ", "[rank0]: 2026-11-30 10:30:00 ")
    answer = diagnose(rank_0=watchdog(0) + "\n" + late)
    assert set(ids(answer)) == {"NCCL_WATCHDOG_TIMEOUT", "TORCH_OOM"}


def test_the_rank_that_never_came_is_named_by_the_counters(diagnose):
    answer = diagnose(watchdog(0), watchdog(1), watchdog(2, enqueued=40, done=40))
    assert ids(answer) == ["NCCL_WATCHDOG_TIMEOUT"]
    assert "Rank 2 never came" in answer.findings[0].cause[0]
    assert "NCCL_WORK_COUNTERS" in led_to(answer)


def test_equal_counters_point_to_the_transport(diagnose):
    answer = diagnose(watchdog(0), watchdog(1))
    assert ids(answer) == ["NCCL_WATCHDOG_TIMEOUT"]
    assert "transport stalled" in answer.findings[0].cause[0]


def test_a_gsp_time_out_is_known_by_its_text(diagnose):
    assert ids(diagnose("kernel: Timeout waiting for RPC from GSP! Expected function 76")) == ["XID_119"]


def test_unset_counters_are_not_compared(diagnose):
    assert ids(diagnose(watchdog(0), watchdog(1, enqueued=-1))) == ["NCCL_WATCHDOG_TIMEOUT"]


def test_the_culprit_prints_remote_errors_too(diagnose):
    answer = diagnose(
        REMOTE.format(rank=1) + "\n[rank1]: RuntimeError: CUDA error: device-side assert triggered",
        REMOTE.format(rank=0),
    )
    assert ids(answer) == ["CUDA_DEVICE_ASSERT"]


def test_only_wrappers_are_answered_as_what_they_are(diagnose):
    answer = diagnose(
        SUMMARY.replace("-6", "1").replace("Signal 6 (SIGABRT) received by PID 4711", "to enable traceback see")
    )
    assert ids(answer) == ["ELASTIC_CHILD_FAILED"]
    assert answer.findings[0].confidence < 0.5


KERNEL = "[  812.1] python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0\n[  812.2] oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0,task_memcg=/docker/ab,task=python3,pid=4711,uid=0\n[  812.3] {memcg}ut of memory: Killed process 4711 (python3) total-vm:91234560kB, anon-rss:61234560kB, file-rss:0kB"  # fmt: skip
KILLED = "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 4711)\n  traceback : Signal 9 (SIGKILL) received by PID 4711"


def test_a_kill_is_proved_by_the_kernels_log(diagnose):
    answer = diagnose(KILLED, KERNEL.format(constraint="CONSTRAINT_NONE", memcg="O"))
    assert ids(answer) == ["KERNEL_OOM_KILLED"]
    assert {"ELASTIC_SIGKILL", "KERNEL_OOM_INVOKED"} <= led_to(answer)


def test_a_control_groups_kill_is_not_the_machines(diagnose):
    answer = diagnose(
        KERNEL.format(constraint="CONSTRAINT_MEMCG", memcg="Memory cgroup o") + "\nmain exited with code 137"
    )
    assert ids(answer) == ["CGROUP_OOM_KILLED"]


def test_exit_137_alone_is_not_called_a_shortage(diagnose):
    answer = diagnose("Process completed with exit code 137.\nMemAvailable: 13149 MB of 15990 MB")
    assert ids(answer) == ["EXIT_137"]
    assert "proves no shortage" in answer.findings[0].cause[0]
    assert answer.findings[0].confidence < 0.7


def test_an_attribute_error_hides_the_cuda_that_does_not_match(diagnose):
    answer = diagnose(
        "deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 11.8 does not match the"
        " version torch was compiled with 12.8, unable to compile cuda/cpp extensions without a matching cuda version.\n"
        "Exception ignored in: <function DeepSpeedCPUAdam.__del__ at 0x7f>\n"
        "AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'"
    )
    assert ids(answer) == ["DS_CUDA_MISMATCH"]
    assert led_to(answer) == {"DS_OP_MISSING"}


def test_the_attribute_error_alone_says_that_a_build_failed(diagnose):
    answer = diagnose("AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'")
    assert ids(answer) == ["DS_OP_MISSING"]
    assert "toolkit" in answer.findings[0].cause[0]


def test_loss_zero_again_and_again_is_nan(diagnose):
    line = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
    assert ids(diagnose(line * 5))[0] in {"LOSS_ZERO_NAN", "GRAD_NAN"}
    assert ids(diagnose("{'loss': 0.0, 'learning_rate': 1e-05, 'epoch': 0.1}\n" * 3)) == ["LOSS_ZERO_NAN"]


def test_nan_norms_of_the_first_fp16_steps_are_harmless(diagnose):
    first = "{'loss': 2.31, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': 0.0}\n"
    rest = "{'loss': 2.11, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
    assert ids(diagnose(first * 2 + rest * 9)) == []
    assert ids(diagnose(first * 9)) == ["GRAD_NAN"]


def test_two_faults_at_once_are_both_told(diagnose):
    answer = diagnose(
        "[ 10.1] NVRM: Xid (PCI:0000:41:00): 79, pid=4711, name=python3, GPU has fallen off the bus.",
        "OSError: [Errno 28] No space left on device: '/ckpt/step-100'",
    )
    assert set(ids(answer)) == {"XID_79", "NO_SPACE"}


def test_a_lost_card_explains_what_cuda_says(diagnose):
    answer = diagnose(
        "RuntimeError: CUDA error: unspecified launch failure\n" + watchdog(0),
        "[ 10.1] NVRM: Xid (PCI:0000:41:00): 79, pid=4711, name=python3, GPU has fallen off the bus.\n"
        "[ 10.2] NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n"
        "[ 10.3] NVRM: Xid (PCI:0000:41:00): 45, pid=4711, name=python3, Ch 00000008",
    )
    assert ids(answer) == ["XID_79"]
    assert {"CUDA_LAUNCH_FAILURE", "NCCL_WATCHDOG_TIMEOUT", "XID_154", "XID_45"} <= led_to(answer)


def test_an_illegal_access_explains_the_xid_that_it_made(diagnose):
    answer = diagnose(
        "[rank0]: RuntimeError: CUDA error: an illegal memory access was encountered",
        "[ 10.1] NVRM: Xid (PCI:0000:41:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault",
    )
    assert ids(answer) == ["CUDA_ILLEGAL_ACCESS"]


def test_a_full_shared_memory_is_not_a_full_disk(diagnose):
    answer = diagnose(
        "host:1:2 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab12Cd to 9637892 bytes, error: No space left on device (28)\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."
    )
    assert ids(answer) == ["NCCL_SHM_NOSPACE"]
    assert led_to(answer) == {"NCCL_UNHANDLED_SYSTEM"}


def test_an_engine_that_is_dead_is_told_by_its_inner_error(diagnose):
    answer = diagnose(
        "(EngineCore pid=9) ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    )
    assert ids(answer) == ["VLLM_NO_KV_BLOCKS"]
    assert led_to(answer) == {"VLLM_ENGINE_DEAD"}


def test_a_refused_request_is_no_cause_of_a_crash(diagnose):
    answer = diagnose(
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens\n"
        "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor."
    )
    assert ids(answer)[0] == "WORKER_DIED"


def test_a_shortage_without_its_usual_line(diagnose):
    assert ids(diagnose("torch.cuda.OutOfMemoryError: CUDA out of memory."))[0] == "TORCH_OOM"
    assert ids(diagnose("RuntimeError: CUDA error: out of memory")) == ["CUDA_DRIVER_OOM"]


def test_a_failure_that_was_caught_is_less_sure(diagnose):
    sure = diagnose(OOM).findings[0]
    caught = diagnose(OOM + "\n" + "\n".join(f"step {i} loss 1.0" for i in range(4000))).findings[0]
    assert caught.confidence < sure.confidence
    assert "caught" in caught.against[0]


@pytest.mark.parametrize(
    "wrap",
    [
        "\x1b[31m{}\x1b[0m",
        "progress  10%|#         |\rprogress  20%|##        |\r{}",
        '{{"log":"{}\\n","stream":"stderr","time":"2026-11-30T10:00:00Z"}}',
        "Nov 30 10:00:00 gpu-1 vllm[4711]: {}",
        "trainer-0 | {}",
        "\ufeff{}\r",
    ],
)
def test_a_line_is_found_however_it_is_wrapped(wrap, diagnose):
    assert ids(diagnose(wrap.format(OOM))) == ["TORCH_OOM"]


@pytest.mark.parametrize(
    "noise",
    [
        "UserWarning: The installed version of bitsandbytes was compiled without GPU support. 8-bit optimizers are unavailable.",
        " [WARNING]  async_io requires the dev libaio .so object and headers but these were not found.",
        "[W1130 10:00:00.1 socket.cpp:204] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.3.1 as it may crash.",
        "ModuleNotFoundError: No module named 'apex'",
        "host:1:2 [0] NCCL INFO NET/IB : No device found.",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        "[2026-11-30] 2 pytorch allocator cache flushes since last step. this happens when there is high memory pressure",
        "WARNING Using a slow image processor; failed to mlock 14000-byte buffer",
    ],
)
def test_warnings_on_the_way_do_not_come_first(noise, diagnose):
    answer = diagnose(noise + "\nstep 1\n" + OOM + "\n" + SUMMARY)
    assert ids(answer)[0] == "TORCH_OOM"
