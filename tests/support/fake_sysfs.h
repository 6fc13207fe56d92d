/* tests/support/fake_sysfs.h - a made-up tree of PCI functions, GPUs and RDMA devices in the layout
 * of the kernel's sysfs. */
#ifndef SL_TESTS_FAKE_SYSFS_H
#define SL_TESTS_FAKE_SYSFS_H

#include "tests/support/tmpdir.h"

struct fake_sysfs {
    struct sl_tmpdir dir;
    char root[80]; /* for sl_nics_scan */
    char gpus[80]; /* for sl_gpus_list */
};
/* Fields that are NULL or 0 are those of a healthy 200 Gbit/s RoCE port, except the counters. */
struct fake_nic {
    const char *name;     /* of the device */
    const char *pci;      /* path below devices/, "pci0000:40/0000:40:01.0/0000:41:00.0" */
    const char *state;    /* "4: ACTIVE" */
    const char *rate;     /* "200 Gb/sec (4X HDR)" */
    const char *layer;    /* "Ethernet" */
    const char *gid;      /* GID 0 */
    const char *gid_type; /* "RoCE v2" */
    const char *netdev;   /* "": none */
    const char *physfn;   /* path of the physical function: it is a virtual one */
    int numa_node;        /* -1 and below: the kernel does not know */
    int port;             /* 1 */
    unsigned long long sent_words, received_words; /* 0: no counters */
};

/* These end the test with the reason if they fail. */
void fake_sysfs_make(struct fake_sysfs *out);
void fake_sysfs_remove(struct fake_sysfs *tree);
/* Makes the function and its link in bus/pci/devices. */
void fake_sysfs_pci(const struct fake_sysfs *tree, const char *pci, int numa_node);
void fake_sysfs_nic(const struct fake_sysfs *tree, const struct fake_nic *nic);
/* Makes a software device on a network device, which is attached at pci (NULL: nowhere). */
void fake_sysfs_soft_nic(const struct fake_sysfs *tree, const char *name, const char *netdev,
                         const char *pci, int numa_node);
void fake_sysfs_gpu(const struct fake_sysfs *tree, const char *pci, int numa_node,
                    const char *uuid);
/* Overwrites ROOT/NAME and makes its directories. */
void fake_sysfs_write(const struct fake_sysfs *tree, const char *name, const char *text);
/* Makes ROOT/NAME a link to target. */
void fake_sysfs_link(const struct fake_sysfs *tree, const char *name, const char *target);

#endif
