"""Lines in the form in which NCCL, RCCL and aws-ofi-nccl print them, made after their source.

No GPU and no NCCL was at hand. Each says which version's format strings it follows; the values are \
invented.
"""

from __future__ import annotations

# NCCL 2.10.3: src/bootstrap.cc:47, transport/net_ib.cc, transport/net_socket.cc, init.cc:340, 757, 780, 907,
# transport/net.cc "Channel %02d : %d[%lx] -> %d[%lx] [send] via NET/%s/%d%s%s".
SOCKET_2_10 = """\
n01:801:801 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>
n01:801:801 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
n01:801:801 [0] NCCL INFO NET/IB : No device found.
n01:801:801 [0] NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>
n01:801:801 [0] NCCL INFO Using network Socket
NCCL version 2.10.3+cuda11.3
n01:801:855 [0] NCCL INFO Channel 00/02 :    0   1
n01:801:855 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1
n01:801:855 [0] NCCL INFO Channel 00 : 1[1b000] -> 0[1b000] [receive] via NET/Socket/0
n01:801:855 [0] NCCL INFO Channel 00 : 0[1b000] -> 1[1b000] [send] via NET/Socket/0
n01:801:855 [0] NCCL INFO Connected all rings
n01:801:855 [0] NCCL INFO Connected all trees
n01:801:855 [0] NCCL INFO 2 coll channels, 2 p2p channels, 1 p2p channels per peer
n01:801:855 [0] NCCL INFO comm 0x7f1 rank 0 nranks 2 cudaDev 0 busId 1b000 - Init COMPLETE
n02:77:77 [0] NCCL INFO Bootstrap : Using eth0:10.1.0.2<0>
n02:77:77 [0] NCCL INFO NET/IB : No device found.
n02:77:77 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.0.2<0>
n02:77:77 [0] NCCL INFO Using network Socket
n02:77:91 [0] NCCL INFO Channel 00 : 0[1b000] -> 1[1b000] [receive] via NET/Socket/0
n02:77:91 [0] NCCL INFO 2 coll channels, 2 p2p channels, 1 p2p channels per peer
n02:77:91 [0] NCCL INFO comm 0x7f2 rank 1 nranks 2 cudaDev 0 busId 1b000 - Init COMPLETE
"""

# NCCL 2.18.6: net_ib.cc:264 (" [%d]%s:%d/%s … OOB"), net.cc "/GDRDMA", p2p.cc:361 (CUMEM), shm.cc:128,
# init.cc:1113, 1356, graph/paths.cc "GPU Direct RDMA Enabled for GPU %lx / HCA %d (distance %d <= %d)".
IB_2_18 = """\
gpu1:900:900 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to =bond0
gpu1:900:900 [0] NCCL INFO Bootstrap : Using bond0:10.2.0.1<0>
gpu1:900:900 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: \
cannot open shared object file: No such file or directory
gpu1:900:900 [0] NCCL INFO NET/Plugin : No plugin found, using internal implementation
gpu1:900:900 [0] NCCL INFO cudaDriverVersion 12020
NCCL version 2.18.6+cuda12.1
gpu1:900:960 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/RoCE [RO]; OOB \
bond0:10.2.0.1<0>
gpu1:900:960 [0] NCCL INFO Using network IB
gpu1:900:960 [0] NCCL INFO comm 0x55d0 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0xa1 \
- Init START
gpu1:900:960 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'
gpu1:900:960 [0] NCCL INFO GPU Direct RDMA Enabled for GPU 1000 / HCA 0 (distance 4 <= 4), read 1
gpu1:900:960 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA
gpu1:900:960 [0] NCCL INFO Channel 00/0 : 0[0] -> 9[1] [send] via NET/IB/1(1)/GDRDMA
gpu1:900:960 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
gpu1:900:960 [0] NCCL INFO Connected all rings
gpu1:900:960 [0] NCCL INFO Connected all trees
gpu1:900:960 [0] NCCL INFO 4 coll channels, 0 nvls channels, 4 p2p channels, 2 p2p channels per peer
gpu1:900:960 [0] NCCL INFO comm 0x55d0 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0xa1 \
- Init COMPLETE
gpu1:900:971 [0] NCCL INFO comm 0x5600 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xb2 - \
Init START
gpu1:900:971 [0] NCCL INFO 8 coll channels, 0 nvls channels, 8 p2p channels, 8 p2p channels per peer
gpu1:900:971 [0] NCCL INFO comm 0x5600 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xb2 - \
Init COMPLETE
"""

# NCCL 2.28.9: debug.cc (time stamps, "\n" before a warning), bootstrap.cc "Bootstrap: Using", plugin/net.cc,
# graph/paths.cc:356, init.cc:1358, 1574; the call that made the communicator stands before "comm".
IB_2_28 = """\
[2026-01-07 11:12:13] h7:31:31 [3] NCCL INFO Bootstrap: Using ib0:10.3.0.7<0>
[2026-01-07 11:12:13] h7:31:44 [3] NCCL INFO NET/IB : Using [0]mlx5_0+mlx5_1:1/IB [RO]; OOB ib0:10.3.0.7<0>
[2026-01-07 11:12:13] h7:31:44 [3] NCCL INFO Initialized NET plugin IB
[2026-01-07 11:12:13] h7:31:44 [3] NCCL INFO Assigned NET plugin IB to comm
[2026-01-07 11:12:13] h7:31:44 [3] NCCL INFO Using network IB
[2026-01-07 11:12:13] h7:31:44 [3] NCCL INFO ncclCommInitRankConfig comm 0x9d0 rank 3 nranks 8 \
cudaDev 3 nvmlDev 3 busId 9000 commId 0xdd - Init START
[2026-01-07 11:12:13] h7:31:44 [3] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0+mlx5_1'
[2026-01-07 11:12:13] h7:31:44 [3] NCCL INFO GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 8 > 5)
[2026-01-07 11:12:13] h7:31:44 [3] NCCL INFO P2P is disabled between connected GPUs 0 and 1. You \
can repress this message with NCCL_IGNORE_DISABLED_P2P=1.
[2026-01-07 11:12:14] h7:31:44 [3] NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls \
channels, 16 p2p channels, 2 p2p channels per peer
[2026-01-07 11:12:14] h7:31:44 [3] NCCL INFO Channel 00/0 : 3[3] -> 7[3] [send] via NET/IB/0/Shared
[2026-01-07 11:12:14] h7:31:44 [3] NCCL INFO Channel 01 : 3[3] -> 2[2] via SHM/direct/direct
[2026-01-07 11:12:14] h7:31:44 [3] NCCL INFO Connected all rings, use ring PXN 0 GDR 0
[2026-01-07 11:12:14] h7:31:44 [3] NCCL INFO ncclCommInitRankConfig comm 0x9d0 rank 3 nranks 8 \
cudaDev 3 nvmlDev 3 busId 9000 commId 0xdd - Init COMPLETE
"""

# aws-ofi-nccl 1.9.2 and 1.16.0 (nccl_ofi_net.c: "Selected Provider is %s (found %d nics)"; nccl_ofi_net.cpp:
# "Selected provider is %s, fabric is %s"); its network is "AWS Libfabric", from 1.13 on "Libfabric".
EFA = """\
p4-1:64:64 [0] NCCL INFO Bootstrap : Using ens5:10.4.0.1<0>
p4-1:64:64 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.9.2-aws
p4-1:64:64 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
p4-1:64:64 [0] NCCL INFO NET/OFI Using transport protocol RDMA (platform set)
p4-1:64:70 [0] NCCL INFO Using network AWS Libfabric
p4-1:64:70 [0] NCCL INFO NET/AWS Libfabric : GPU Direct RDMA Enabled for HCA 0 'rdmap16s27-rdm'
p4-1:64:70 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA
p4-1:64:70 [0] NCCL INFO comm 0x1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 101c0 commId 0x9 - \
Init COMPLETE
"""
EFA_1_16 = """\
p5-1:64:64 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.0
p5-1:64:64 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)
p5-1:64:70 [0] NCCL INFO Using network Libfabric
p5-1:64:70 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA/Shared
"""

# RCCL of ROCm 6.2 (init.cc: "RCCL version " … "+hip") and of 6.3 ("RCCL version : …", "HIP version  : …");
# p2p.cc adds "comm %p nRanks %02d".
RCCL_6_2 = """\
mi1:5:5 [0] NCCL INFO Bootstrap : Using eno2np1:192.168.2.1<0>
RCCL version 2.18.6+hip6.2 HEAD:4e5a
mi1:5:9 [0] NCCL INFO Using network Socket
mi1:5:9 [0] NCCL INFO Channel 00/0 : 0[c000] -> 1[22000] via P2P/IPC comm 0x7f nRanks 08
mi1:5:9 [0] NCCL INFO comm 0x7f rank 0 nranks 8 cudaDev 0 busId c000 commId 0x2 - Init COMPLETE
"""
RCCL_6_3 = """\
RCCL version : 2.21.5-HEAD:9a0e6a1
HIP version  : 6.3.42134-a9a80e791
ROCm version : 6.3.3.0-74-cbc70b5
"""

# gloo prints it from its rendezvous, also below torch: rank, peers, expected peers.
GLOO = "[Gloo] Rank 2 is connected to 2 peer ranks. Expected number of connected peer ranks is : 3\n"
