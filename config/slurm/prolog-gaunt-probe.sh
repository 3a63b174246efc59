#!/bin/sh
# A Slurm prolog that asks, before a job gets this node, whether its GPUs' links carry data, right and fast enough.
#
# slurm.conf:  Prolog=/etc/slurm/prolog.d/*   PrologFlags=Alloc   PrologEpilogTimeout=60
# Install the script on every node before that line: slurmd drains a node whose folder is empty.
#
# A prolog that fails drains the node and gives the job back to the queue. Only what a job would suffer from does that:
# wrong data (4), a probe that hangs (6), a lost GPU (7). A slow link (5) is logged; set FATAL="4 5 6 7" to drain for it.
# Whatever keeps the probe from measuring, GPUs in use or no driver, is no reason to refuse a job.
FATAL=${FATAL:-"4 6 7"}
# Below this bandwidth in GB/s a node is slow: for 8 H100 SXM about 200 at 64 MiB; see what yours reach.
FLOOR=${FLOOR:-0}

# SLURM_JOB_GPUS names the GPUs of the job by NVML's index; without it all are meant.
said=$("${GAUNT_PROBE:-/usr/bin/gaunt-probe}" all-reduce --bytes 64MiB --floor "$FLOOR" --setup 30s \
    ${SLURM_JOB_GPUS:+--gpus "$SLURM_JOB_GPUS"} 2>&1)
code=$?
[ "$code" -eq 0 ] || logger -t gaunt-probe "job $SLURM_JOB_ID, exit $code: $said"
for fatal in $FATAL; do
    [ "$code" -ne "$fatal" ] || exit 1
done
exit 0
