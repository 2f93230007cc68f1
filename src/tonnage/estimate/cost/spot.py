"""What interruptions cost: how often to save, and how long a job takes that is taken away now and then.

Interruptions are taken as a Poisson process, as the papers do; real ones come in bursts. Legend: delta is the time to
write a checkpoint, M the mean time between interruptions, R the time to start again, tau the work between two
checkpoints.
"""

from __future__ import annotations

from tonnage.units import Count, Numeric, Ratio, Seconds


def job_mean_seconds(mean_seconds: Seconds, num_instances: Count) -> Seconds:
    """Mean time between interruptions of a job that stops when any of its machines does.

    Parameters
    ----------
    mean_seconds : numeric
        Mean time between interruptions of one machine, M. [s]
    num_instances : numeric
        Machines that the job needs together. [1]

    Returns
    -------
    numeric
        Mean time between interruptions of the job. [s]

    Notes
    -----
    Derived: rates of independent Poisson processes add. Machines of one zone are taken together more often than that,
    which makes this an underestimate of the time.

    Examples
    --------
    >>> job_mean_seconds(86_400.0, 4)
    21600.0
    """
    return mean_seconds / num_instances


def young_interval_seconds(checkpoint_seconds: Seconds, mean_seconds: Seconds) -> Seconds:
    """Work between two checkpoints that loses least, to first order: sqrt(2 delta M).

    Parameters
    ----------
    checkpoint_seconds : numeric
        Time to write a checkpoint while the job waits, delta. [s]
    mean_seconds : numeric
        Mean time between interruptions of the job, M. [s]

    Returns
    -------
    numeric
        Work between two checkpoints. [s]

    Notes
    -----
    Good while delta is much less than M; else `daly_interval_seconds`.

    References
    ----------
    .. [1] J. W. Young, "A first order approximation to the optimum checkpoint interval", Communications of the ACM 17(9),
       1974, doi:10.1145/361147.361115.

    Examples
    --------
    >>> young_interval_seconds(300.0, 86_400.0)
    7200.0
    """
    return (2.0 * checkpoint_seconds * mean_seconds) ** 0.5


def daly_interval_seconds(checkpoint_seconds: Seconds, mean_seconds: Seconds) -> Seconds:
    """Work between two checkpoints that loses least, to higher order; M where a checkpoint takes 2 M or longer.

    Parameters
    ----------
    checkpoint_seconds : numeric
        Time to write a checkpoint while the job waits, delta. [s]
    mean_seconds : numeric
        Mean time between interruptions of the job, M. [s]

    Returns
    -------
    numeric
        Work between two checkpoints. [s]

    References
    ----------
    .. [1] J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
       Computer Systems 22(3), 2006, eq. 37, doi:10.1016/j.future.2004.11.016.

    Examples
    --------
    The paper's own cases: delta of 5 minutes and M of 24 h, 6 h and 15 minutes give 117, 57 and 9.1 minutes.

    >>> [round(float(daly_interval_seconds(300.0, m * 60.0)) / 60, 1) for m in (1440, 360, 15)]
    [116.7, 56.7, 9.1]
    """
    from tonnage.estimate.branch import where  # noqa: PLC0415  brings numpy; a plan without spot does without

    part: Numeric = (checkpoint_seconds / (2.0 * mean_seconds)) ** 0.5
    short: Numeric = young_interval_seconds(checkpoint_seconds, mean_seconds) * (1.0 + part / 3.0 + part**2 / 9.0)
    return where(part < 1.0, short - checkpoint_seconds, mean_seconds)


def expected_seconds(
    work_seconds: Seconds,
    interval_seconds: Seconds,
    checkpoint_seconds: Seconds,
    restart_seconds: Seconds,
    mean_seconds: Seconds,
) -> Seconds:
    """Mean time that a job holds its machines, with checkpoints, lost work and restarts.

    Parameters
    ----------
    work_seconds : numeric
        Time of the job if nothing were ever lost or saved. [s]
    interval_seconds : numeric
        Work between two checkpoints, tau. [s]
    checkpoint_seconds : numeric
        Time to write a checkpoint while the job waits, delta; asynchronous saving makes it small. [s]
    restart_seconds : numeric
        Time from getting machines to working again, R: start-up, loading, warming. [s]
    mean_seconds : numeric
        Mean time between interruptions of the job, M. [s]

    Returns
    -------
    numeric
        Time paid for. [s]

    Notes
    -----
    M e^(R/M) (e^((tau + delta)/M) - 1) work/tau: restarts and checkpoints may be interrupted as well. Leaves out waiting
    for machines, which is not paid: see `waiting_seconds`. A job shorter than the interval saves once, at its end.

    References
    ----------
    .. [1] J. T. Daly, Future Generation Computer Systems 22(3), 2006, eq. 20, doi:10.1016/j.future.2004.11.016.

    Examples
    --------
    A day's work, saved every two hours in 5 minutes, interrupted once a day, 10 minutes to start again:

    >>> round(float(expected_seconds(86_400.0, 7200.0, 300.0, 600.0, 86_400.0)) / 3600, 2)
    26.3
    """
    import numpy as np  # noqa: PLC0415  a plan without spot does without

    interval = np.minimum(interval_seconds, work_seconds)
    pieces = work_seconds / interval
    return (
        mean_seconds
        * np.exp(restart_seconds / mean_seconds)
        * np.expm1((interval + checkpoint_seconds) / mean_seconds)
        * pieces
    )


def waiting_seconds(held_seconds: Seconds, available_ratio: Ratio) -> Seconds:
    """Time that passes until a job has held machines for so long, where there are none at times.

    Parameters
    ----------
    held_seconds : numeric
        Time that machines are held, `expected_seconds`. [s]
    available_ratio : numeric
        Share of the time in which spot machines can be had. [0-1]

    Returns
    -------
    numeric
        Time from start to end. [s]

    Notes
    -----
    Derived: machines are there a share a of the time, so holding them for t takes t/a.

    Examples
    --------
    >>> waiting_seconds(3600.0, 0.8)
    4500.0
    """
    return held_seconds / available_ratio


def first_loss_seconds(interval_seconds: Seconds, checkpoint_seconds: Seconds, mean_seconds: Seconds) -> Seconds:
    """Work that one interruption takes away on average.

    Parameters
    ----------
    interval_seconds : numeric
        Work between two checkpoints. [s]
    checkpoint_seconds : numeric
        Time to write a checkpoint. [s]
    mean_seconds : numeric
        Mean time between interruptions of the job. [s]

    Returns
    -------
    numeric
        Time since the last checkpoint when an interruption comes. [s]

    Notes
    -----
    Derived: the mean of an exponential time cut off at the segment's length L = tau + delta,
    M - L / (e^(L/M) - 1); half of L where L is much less than M.

    Examples
    --------
    >>> round(float(first_loss_seconds(7200.0, 300.0, 1e9)))
    3750
    """
    import numpy as np  # noqa: PLC0415  a plan without spot does without

    from tonnage.estimate.branch import where  # noqa: PLC0415

    length: Numeric = interval_seconds + checkpoint_seconds
    part = length / mean_seconds
    exact: Numeric = mean_seconds - length / np.expm1(part)
    return where(part < 1e-5, length * (0.5 - part / 12.0), exact)


def steady_ratio(restart_seconds: Seconds, mean_seconds: Seconds) -> Ratio:
    """Share of the held time in which a server answers, where each interruption costs a start.

    Parameters
    ----------
    restart_seconds : numeric
        Time from getting a machine to answering. [s]
    mean_seconds : numeric
        Mean time between interruptions. [s]

    Returns
    -------
    numeric
        Share that is up. [0-1]

    Notes
    -----
    Derived: a renewal cycle of M up and R starting.

    Examples
    --------
    >>> steady_ratio(360.0, 3240.0)
    0.9
    """
    return mean_seconds / (mean_seconds + restart_seconds)
