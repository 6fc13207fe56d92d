/* runtime/net/nics/nics.h - the RDMA ports of this machine as sysfs shows them, its GPUs, how near
 * they are to each other, and which port serves which rank.
 *
 * Nothing here opens a device or needs a library. All contents of sysfs are taken for hostile:
 * reads are bounded, names are checked, a link that leads nowhere is a place that is not known. One
 * thread a call; nothing is kept between calls. */
#ifndef SL_NICS_NICS_H
#define SL_NICS_NICS_H

#include "runtime/base/sl_error.h"

#define SL_SYSFS          "/sys"
#define SL_NVIDIA_GPUS    "/proc/driver/nvidia/gpus"
#define SL_NIC_NAME_BYTES 64u
#define SL_NICS_MAX       64u /* ports of all RDMA devices; further ones are not looked at */
#define SL_GPUS_MAX       64u
#define SL_PCI_DEPTH_MAX  16u /* bridges above a function, and itself */
#define SL_NIC_RANKS_MAX  64u /* the most that the setting `ranks` takes */

/* ---- places ---- */
struct sl_pci_place {
    uint64_t steps[SL_PCI_DEPTH_MAX]; /* addresses from the root port down to the function itself */
    uint32_t depth;                   /* 0: the place is not known */
    int32_t numa_node;                /* -1: not known */
    char bridge[24];                  /* the host bridge, "pci0000:40"; "": not known */
};

/* From near to far. Below one root port: directly at one switch, or with further switches between.
 */
enum sl_near {
    SL_NEAR_SWITCH,
    SL_NEAR_ROOT_PORT,
    SL_NEAR_BRIDGE, /* the same host bridge */
    SL_NEAR_SOCKET, /* the same NUMA node */
    SL_NEAR_ANY,
};
const char *sl_near_text(enum sl_near near); /* "same switch"; "?" for a foreign number */
/* How near two functions are; *hops (may be NULL) is the number of steps between them below what
 * they share, 0 where they share no bridge. */
enum sl_near sl_pci_near(const struct sl_pci_place *a, const struct sl_pci_place *b,
                         uint32_t *hops);
/* The place of the PCI function whose directory path leads to, links followed. Only the addresses
 * in the path count, so a made-up tree may lie anywhere. depth 0: there is none. */
void sl_pci_place_read(const char *path, struct sl_pci_place *out);

/* ---- GPUs ---- */
struct sl_gpu {
    char uuid[48];  /* "GPU-8a1b..." */
    uint32_t index; /* physical */
    struct sl_pci_place place;
};
/* Fills gpus in the order of their PCI addresses, which is that of their physical indices. Gives
 * their count; 0 where there is no driver. directory: SL_NVIDIA_GPUS. sysfs: SL_SYSFS, or NULL: no
 * places. */
uint32_t sl_gpus_list(const char *directory, const char *sysfs, struct sl_gpu gpus[SL_GPUS_MAX]);

/* ---- NICs ---- */
struct sl_nic {                   /* one port of an RDMA device */
    char name[SL_NIC_NAME_BYTES]; /* as the setting `nic` takes it: DEVICE, or DEVICE:PORT where the
                                   * device has several ports */
    char device[48], netdev[16];  /* netdev "": none, or not of this network namespace */
    char state[24];               /* "ACTIVE", "DOWN", ...; printable */
    char layer[24];               /* "Ethernet", "InfiniBand" */
    struct sl_pci_place place;    /* of a software device: that of its network device */
    uint64_t physical;            /* address of the physical function; 0: not known */
    uint64_t rate_mbit_s;         /* 0: not known */
    uint64_t sent_bytes, received_bytes; /* since the driver was loaded */
    uint32_t port, mtu_bytes;            /* mtu_bytes: of netdev; 0: not known */
    uint32_t gid_count;                  /* of those that a peer can reach */
    bool counted;                        /* there are counters of bytes */
    bool virtual_function;
};
struct sl_nics {
    uint32_t count;   /* by device (mlx5_2 before mlx5_10), then port */
    uint32_t skipped; /* devices and ports without a usable name, or over SL_NICS_MAX */
    struct sl_nic at[SL_NICS_MAX];
};
/* Looks at SYSFS/class/infiniband. No such directory: no NIC. sysfs: SL_SYSFS in earnest. */
void sl_nics_scan(const char *sysfs, struct sl_nics *out);
/* Reads state and counters of the port anew, e.g. for its load. False: the port is gone. */
bool sl_nic_refresh(const char *sysfs, struct sl_nic *nic);
bool sl_nic_is_active(const struct sl_nic *nic);
/* Active, and a peer can reach it. */
bool sl_nic_is_usable(const struct sl_nic *nic);
/* NULL: there is none of that name. DEVICE alone finds the first usable port of it, else its first.
 */
const struct sl_nic *sl_nics_find(const struct sl_nics *nics, const char *name);

/* ---- lists: setting `nic` ---- */
struct sl_nic_sources {
    const char *list; /* comma list: one entry for all, or one a GPU or rank */
    uint32_t rank;    /* index into CUDA_VISIBLE_DEVICES */
    bool by_rank; /* entry rank modulo their number, as FastDeploy has it; else by physical GPU */
    const char *visible_devices; /* text of CUDA_VISIBLE_DEVICES; NULL: not set */
    const struct sl_gpu *gpus;   /* of this machine, to resolve UUIDs */
    uint32_t gpu_count;
    int64_t registered_index; /* physical GPU as the engine registered it; -1: unknown */
};
/* One entry serves all ranks; of several, that of the rank's physical GPU (vLLM), or with by_rank
 * that of the rank. An empty list gives "". Errors: SL_ERR_CONFIG (an empty entry, a list too
 * short, an unknown index with several entries; the text says which). */
sl_err sl_nic_choose(const struct sl_nic_sources *sources, char out[SL_NIC_NAME_BYTES],
                     struct sl_error *why);
/* The physical GPU of a rank. Errors: SL_ERR_CONFIG (not known; the text says why). */
sl_err sl_nic_gpu_index(const struct sl_nic_sources *sources, uint32_t *out, struct sl_error *why);
/* "auto", or Mooncake's word for it, "auto-discovery". */
bool sl_nic_list_is_auto(const char *list);

/* ---- the plan of a node ---- */
struct sl_nic_plan {
    uint32_t count;                             /* 1..SL_NICS_MAX: the NICs in use, in the order
                                                 * of the first rank of each */
    char names[SL_NICS_MAX][SL_NIC_NAME_BYTES]; /* "": the first with a usable port */
    uint32_t rank_count;
    uint32_t of_rank[SL_NIC_RANKS_MAX];          /* into names */
    enum sl_near near_of_rank[SL_NIC_RANKS_MAX]; /* SL_NEAR_ANY where it is not known */
};
/* Which NIC serves each of the ranks 0..rank_count - 1 (1..SL_NIC_RANKS_MAX). sources->rank is not
 * looked at, registered_index counts for a single rank alone.
 *
 * With a list by sl_nic_choose; the NICs need not be there. With `auto` each rank gets the nearest
 * usable port of its GPU. Of several that are equally near it is the one with the largest share of
 * speed left for a rank more, then the first by name. A rank whose GPU is not known is near to
 * none. Of the functions of one physical port one counts: the physical one, else the first virtual
 * one. Errors: SL_ERR_CONFIG (as sl_nic_choose), SL_ERR_UNSUPPORTED (auto, and no port is usable;
 * the text names the first and its state), SL_ERR_INVALID (rank_count). */
sl_err sl_nic_plan_make(const struct sl_nic_sources *sources, const struct sl_nics *nics,
                        uint32_t rank_count, struct sl_nic_plan *out, struct sl_error *why);
struct sl_config;
/* The same of this machine and these settings: nic, nic_by, ranks, and CUDA_VISIBLE_DEVICES.
 * Errors: those of sl_nic_plan_make, SL_ERR_NO_MEMORY. */
sl_err sl_nic_plan_here(const struct sl_config *config, struct sl_nic_plan *out,
                        struct sl_error *why);

#endif
