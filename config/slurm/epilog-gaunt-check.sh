#!/bin/sh
# A Slurm epilog that drains a node whose hardware gaunt found faulty while the job ran, with the finding as the reason.
#
# slurm.conf:  Epilog=/etc/slurm/epilog.d/*   PrologEpilogTimeout=60
# Install the script on every node before that line: slurmd drains a node whose folder is empty.
# GAUNT_AGGREGATOR, GAUNT_CA_FILE and GAUNT_TOKEN (a token with the role read) are read from /etc/default/gaunt-slurm, mode 600.
#
# An aggregator that does not answer is no reason to drain a node: the epilog then only logs.
[ ! -r /etc/default/gaunt-slurm ] || . /etc/default/gaunt-slurm
export GAUNT_AGGREGATOR GAUNT_CA_FILE GAUNT_TOKEN
# The kinds of findings that drain.
KINDS=${KINDS:-gpu_failed,pcie_degraded,nvlink_degraded,fabric_degraded,port_down,driver_hung}
node=${SLURMD_NODENAME:-$(hostname -s)}

found=$(timeout 20 gaunt snapshot --ask table/findings --format csv \
    --filter "node=$node and finding=$KINDS and severity=warning,critical and not has acknowledged limit 1 columns finding,entity" 2>/dev/null)
# The first line has the names of the columns. The exit code is 3 too while any target of the cluster is down.
case $found in
    finding,entity*) ;;
    *)
        logger -t gaunt "epilog of job $SLURM_JOB_ID: no answer of gaunt; run gaunt doctor"
        exit 0
        ;;
esac
finding=$(printf '%s\n' "$found" | sed -n 2p | tr -d '\r')
[ -z "$finding" ] || scontrol update NodeName="$node" State=DRAIN Reason="gaunt: $finding"
exit 0
