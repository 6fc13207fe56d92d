/* runtime/net/nics/nics.h - RDMA ports and GPUs of this machine as sysfs shows them, how near they
 * are to each other, and which port serves which rank.
 *
 * Nothing here opens a device or needs a library. Contents of sysfs are untrusted: reads are
 * bounded, names are checked, and a broken link means an unknown location. One thread for each
 * call; no state is kept between calls. */
#ifndef SL_NICS_NICS_H
#define SL_NICS_NICS_H

#include "runtime/base/sl_error.h"

#define SL_SYSFS          "/sys"
#define SL_NVIDIA_GPUS    "/proc/driver/nvidia/gpus"
#define SL_NIC_NAME_BYTES 64u
#define SL_NICS_MAX       64u /* ports of all RDMA devices; more are ignored */
#define SL_GPUS_MAX       64u
#define SL_PCI_DEPTH_MAX  16u /* a function and the bridges above it */
#define SL_NIC_RANKS_MAX  64u /* limit of the setting `ranks` */

/* ---- locations ---- */
struct sl_pci_place {
    uint64_t steps[SL_PCI_DEPTH_MAX]; /* addresses from the root port down to the function */
    uint32_t depth;                   /* 0: the location is unknown */
    int32_t numa_node;                /* -1: unknown */
    char bridge[24];                  /* host bridge, "pci0000:40"; "": unknown */
};

/* From near to far. Below one root port: directly at one switch, or with other switches between. */
enum sl_near {
    SL_NEAR_SWITCH,
    SL_NEAR_ROOT_PORT,
    SL_NEAR_BRIDGE, /* the same host bridge */
    SL_NEAR_SOCKET, /* the same NUMA node */
    SL_NEAR_ANY,
};
const char *sl_near_text(enum sl_near near); /* "same switch"; "?" if invalid */
/* How near two functions are. *hops (may be NULL): number of steps between them below their common
 * ancestor, 0 if they share no root port. */
enum sl_near sl_pci_near(const struct sl_pci_place *a, const struct sl_pci_place *b,
                         uint32_t *hops);
/* Reads the location of the PCI function whose directory `path` leads to, through links. Only the
 * addresses in the path count, so a test tree may be anywhere. depth 0: not a PCI function. */
void sl_pci_place_read(const char *path, struct sl_pci_place *out);

/* ---- GPUs ---- */
struct sl_gpu {
    char uuid[48];  /* "GPU-8a1b..." */
    uint32_t index; /* physical */
    struct sl_pci_place place;
};
/* Fills gpus in the order of their PCI addresses, which is the order of physical indices. Gives
 * their number; 0 without a driver. directory: SL_NVIDIA_GPUS. sysfs: SL_SYSFS, or NULL: without
 * locations. */
uint32_t sl_gpus_list(const char *directory, const char *sysfs, struct sl_gpu gpus[SL_GPUS_MAX]);

/* ---- NICs ---- */
struct sl_nic {                          /* one port of an RDMA device */
    char name[SL_NIC_NAME_BYTES];        /* for the setting `nic`: DEVICE or DEVICE:PORT */
    char device[48], netdev[16];         /* "": none, or of another network namespace */
    char state[24];                      /* "ACTIVE", "DOWN", ...; printable */
    char layer[24];                      /* "Ethernet", "InfiniBand" */
    struct sl_pci_place place;           /* for a software device: of its network device */
    uint64_t physical;                   /* address of the physical function; 0: unknown */
    uint64_t rate_mbit_s;                /* 0: unknown */
    uint64_t sent_bytes, received_bytes; /* since the driver was loaded */
    uint32_t port, mtu_bytes;            /* mtu_bytes: of netdev; 0: unknown */
    uint32_t gid_count;                  /* GIDs that a peer can reach */
    bool counted;                        /* byte counters exist */
    bool virtual_function;
};
struct sl_nics {
    uint32_t count;   /* by device (mlx5_2 before mlx5_10), then port */
    uint32_t skipped; /* without a usable name, or over SL_NICS_MAX */
    struct sl_nic at[SL_NICS_MAX];
};
/* Reads SYSFS/class/infiniband. Without that directory there are no NICs. sysfs: SL_SYSFS, except
 * in tests. */
void sl_nics_scan(const char *sysfs, struct sl_nics *out);
/* Reads state and counters of the port again. False: the port no longer exists. */
bool sl_nic_refresh(const char *sysfs, struct sl_nic *nic);
bool sl_nic_is_active(const struct sl_nic *nic);
/* Active, with a GID that a peer can reach. */
bool sl_nic_is_usable(const struct sl_nic *nic);
/* Finds a port; NULL: none. DEVICE without a port finds its first usable port, else its first. */
const struct sl_nic *sl_nics_find(const struct sl_nics *nics, const char *name);

/* ---- lists: setting `nic` ---- */
struct sl_nic_sources {
    const char *list; /* comma-separated: one entry for all, or one for each GPU or rank */
    uint32_t rank;    /* index into CUDA_VISIBLE_DEVICES */
    bool by_rank;     /* use entry rank modulo count, as FastDeploy does; else by physical GPU */
    const char *visible_devices; /* CUDA_VISIBLE_DEVICES; NULL: not set */
    const struct sl_gpu *gpus;   /* of this machine, to resolve UUIDs */
    uint32_t gpu_count;
    int64_t registered_index; /* physical GPU that the engine registered; -1: unknown */
};
/* Chooses the entry of the list: a single entry serves all ranks; of several, that of the rank's
 * physical GPU (vLLM), or with by_rank that of the rank. An empty list gives "". Errors:
 * SL_ERR_CONFIG (empty entry, list too short, or unknown GPU with several entries; the text says
 * which). */
sl_err sl_nic_choose(const struct sl_nic_sources *sources, char out[SL_NIC_NAME_BYTES],
                     struct sl_error *why);
/* Gives the physical GPU of a rank. Errors: SL_ERR_CONFIG (unknown; the text says why). */
sl_err sl_nic_gpu_index(const struct sl_nic_sources *sources, uint32_t *out, struct sl_error *why);
/* Whether the list is "auto" or Mooncake's synonym "auto-discovery". */
bool sl_nic_list_is_auto(const char *list);

/* ---- plan of a node ---- */
struct sl_nic_plan {
    uint32_t count;                             /* 1..SL_NICS_MAX; by the first rank of each */
    char names[SL_NICS_MAX][SL_NIC_NAME_BYTES]; /* "": the first usable port */
    uint32_t rank_count;
    uint32_t of_rank[SL_NIC_RANKS_MAX];          /* index into names */
    enum sl_near near_of_rank[SL_NIC_RANKS_MAX]; /* SL_NEAR_ANY: unknown */
};
/* Chooses the NIC of each rank 0..rank_count - 1 (1..SL_NIC_RANKS_MAX). Ignores sources->rank;
 * registered_index is used only for a single rank.
 *
 * With a list it uses sl_nic_choose; the NICs need not exist. With `auto` each rank gets the
 * nearest usable port of its GPU. Of equally near ones it gets the port with the largest share of
 * speed left for one more rank, then the first by name. A rank whose GPU is unknown is near to
 * none. Of the functions of one physical port only one counts: the physical one, else the first
 * virtual one. Errors: SL_ERR_CONFIG (as sl_nic_choose), SL_ERR_UNSUPPORTED (auto, and no port is
 * usable; the text names the first and its state), SL_ERR_INVALID (rank_count). */
sl_err sl_nic_plan_make(const struct sl_nic_sources *sources, const struct sl_nics *nics,
                        uint32_t rank_count, struct sl_nic_plan *out, struct sl_error *why);
struct sl_config;
/* The same for this machine and its settings: nic, nic_by, ranks, and CUDA_VISIBLE_DEVICES. Errors:
 * those of sl_nic_plan_make, SL_ERR_NO_MEMORY. */
sl_err sl_nic_plan_here(const struct sl_config *config, struct sl_nic_plan *out,
                        struct sl_error *why);

#endif
