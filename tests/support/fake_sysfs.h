/* tests/support/fake_sysfs.h - a made-up tree of PCI functions, GPUs and RDMA devices, laid out as
 * the kernel's sysfs is. */
#ifndef SL_TESTS_FAKE_SYSFS_H
#define SL_TESTS_FAKE_SYSFS_H

#include "tests/support/tmpdir.h"

struct fake_sysfs {
    struct sl_tmpdir dir;
    char root[80]; /* for sl_nics_scan */
    char gpus[80]; /* for sl_gpus_list */
};
/* What is NULL or 0 gets the value of a healthy 200 Gbit/s RoCE port, but for the counters. */
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

/* A failure of any of these ends the test with its reason. */
void fake_sysfs_make(struct fake_sysfs *out);
void fake_sysfs_remove(struct fake_sysfs *tree);
/* The function and its link in bus/pci/devices. */
void fake_sysfs_pci(const struct fake_sysfs *tree, const char *pci, int numa_node);
void fake_sysfs_nic(const struct fake_sysfs *tree, const struct fake_nic *nic);
/* A software device on a network device, which hangs at pci (NULL: nowhere). */
void fake_sysfs_soft_nic(const struct fake_sysfs *tree, const char *name, const char *netdev,
                         const char *pci, int numa_node);
void fake_sysfs_gpu(const struct fake_sysfs *tree, const char *pci, int numa_node,
                    const char *uuid);
/* Writes ROOT/NAME anew, with its directories. */
void fake_sysfs_write(const struct fake_sysfs *tree, const char *name, const char *text);
/* Makes ROOT/NAME a link. */
void fake_sysfs_link(const struct fake_sysfs *tree, const char *name, const char *target);

#endif
