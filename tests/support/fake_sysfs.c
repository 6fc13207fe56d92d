/* tests/support/fake_sysfs.c - makes the directories, files and relative links of the kernel's. */
#include "tests/support/fake_sysfs.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static _Noreturn void failed(const char *what, const char *path)
{
    (void)fprintf(stderr, "%s '%s': %s\n", what, path, strerror(errno));
    abort();
}

static void SL_PRINTF(2, 3) path_put(char out[PATH_MAX], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is begun above */
    int length = vsnprintf(out, PATH_MAX, format, arguments);
    va_end(arguments);
    SL_ASSERT(length > 0 && length < PATH_MAX);
}

/* The directories above the last step, or with `all` that one too. */
static void directories_make(const char *path, bool all)
{
    char part[PATH_MAX];
    path_put(part, "%s%s", path, all ? "/" : "");
    for (char *at = strchr(part + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) {
            failed("make directory", part);
        }
        *at = '/';
    }
}

void fake_sysfs_write(const struct fake_sysfs *tree, const char *name, const char *text)
{
    char path[PATH_MAX];
    path_put(path, "%s/%s", tree->root, name);
    directories_make(path, false);
    FILE *file = fopen(path, "we");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        failed("write", path);
    }
}

static void SL_PRINTF(3, 4)
    put(const struct fake_sysfs *tree, const char *text, const char *format, ...)
{
    char name[PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is begun above */
    int length = vsnprintf(name, sizeof(name), format, arguments);
    va_end(arguments);
    SL_ASSERT(length > 0 && length < PATH_MAX);
    fake_sysfs_write(tree, name, text);
}

void fake_sysfs_link(const struct fake_sysfs *tree, const char *name, const char *target)
{
    char path[PATH_MAX];
    path_put(path, "%s/%s", tree->root, name);
    directories_make(path, false);
    if (symlink(target, path) != 0 && errno != EEXIST) {
        failed("link", path);
    }
}

static const char *last_step(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void fake_sysfs_make(struct fake_sysfs *out)
{
    sl_tmpdir_make(&out->dir, "/tmp");
    (void)snprintf(out->root, sizeof(out->root), "%s/sys", out->dir.path);
    (void)snprintf(out->gpus, sizeof(out->gpus), "%s/gpus", out->dir.path);
    directories_make(out->root, true);
    directories_make(out->gpus, true);
}

void fake_sysfs_remove(struct fake_sysfs *tree)
{
    sl_tmpdir_remove(&tree->dir);
}

void fake_sysfs_pci(const struct fake_sysfs *tree, const char *pci, int numa_node)
{
    char text[32], name[PATH_MAX], target[PATH_MAX];
    (void)snprintf(text, sizeof(text), "%d\n", numa_node);
    put(tree, text, "devices/%s/numa_node", pci);
    path_put(name, "bus/pci/devices/%s", last_step(pci));
    path_put(target, "../../../devices/%s", pci);
    fake_sysfs_link(tree, name, target);
}

static void port_make(const struct fake_sysfs *tree, const struct fake_nic *nic, const char *device)
{
    char port[PATH_MAX], text[64];
    path_put(port, "%s/ports/%d", device, nic->port == 0 ? 1 : nic->port);
    put(tree, nic->state != NULL ? nic->state : "4: ACTIVE\n", "%s/state", port);
    put(tree, nic->rate != NULL ? nic->rate : "200 Gb/sec (4X HDR)\n", "%s/rate", port);
    put(tree, nic->layer != NULL ? nic->layer : "Ethernet\n", "%s/link_layer", port);
    put(tree, nic->gid != NULL ? nic->gid : "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
        "%s/gids/0", port);
    put(tree, nic->gid_type != NULL ? nic->gid_type : "RoCE v2\n", "%s/gid_attrs/types/0", port);
    if (nic->netdev == NULL || nic->netdev[0] != '\0') {
        const char *netdev = nic->netdev != NULL ? nic->netdev : "eth0";
        put(tree, netdev, "%s/gid_attrs/ndevs/0", port);
        put(tree, "9000\n", "class/net/%s/mtu", netdev);
    }
    if (nic->sent_words != 0 || nic->received_words != 0) {
        (void)snprintf(text, sizeof(text), "%llu\n", nic->sent_words);
        put(tree, text, "%s/counters/port_xmit_data", port);
        (void)snprintf(text, sizeof(text), "%llu\n", nic->received_words);
        put(tree, text, "%s/counters/port_rcv_data", port);
    }
}

void fake_sysfs_nic(const struct fake_sysfs *tree, const struct fake_nic *nic)
{
    char device[PATH_MAX], name[PATH_MAX], target[PATH_MAX];
    fake_sysfs_pci(tree, nic->pci, nic->numa_node);
    path_put(device, "devices/%s/infiniband/%s", nic->pci, nic->name);
    port_make(tree, nic, device);
    path_put(name, "%s/device", device);
    fake_sysfs_link(tree, name, "../../");
    path_put(name, "class/infiniband/%s", nic->name);
    path_put(target, "../../%s", device);
    fake_sysfs_link(tree, name, target);
    if (nic->physfn != NULL) {
        path_put(name, "devices/%s/physfn", nic->pci);
        path_put(target, "%s/devices/%s", tree->root, nic->physfn);
        fake_sysfs_link(tree, name, target);
    }
}

void fake_sysfs_soft_nic(const struct fake_sysfs *tree, const char *name, const char *netdev,
                         const char *pci, int numa_node)
{
    char device[PATH_MAX], link[PATH_MAX], target[PATH_MAX];
    struct fake_nic nic = {.rate = "2.5 Gb/sec (1X SDR)\n", .netdev = netdev};
    path_put(device, "devices/virtual/infiniband/%s", name);
    port_make(tree, &nic, device);
    put(tree, netdev, "%s/parent", device);
    put(tree, "700\n", "class/net/%s/statistics/tx_bytes", netdev);
    put(tree, "900\n", "class/net/%s/statistics/rx_bytes", netdev);
    path_put(link, "class/infiniband/%s", name);
    path_put(target, "../../%s", device);
    fake_sysfs_link(tree, link, target);
    if (pci != NULL) {
        fake_sysfs_pci(tree, pci, numa_node);
        path_put(link, "class/net/%s/device", netdev);
        path_put(target, "../../../devices/%s", pci);
        fake_sysfs_link(tree, link, target);
    }
}

void fake_sysfs_gpu(const struct fake_sysfs *tree, const char *pci, int numa_node, const char *uuid)
{
    char path[PATH_MAX];
    fake_sysfs_pci(tree, pci, numa_node);
    path_put(path, "%s/%s/information", tree->gpus, last_step(pci));
    directories_make(path, false);
    FILE *file = fopen(path, "we");
    if (file == NULL ||
        fprintf(file, "Model: \t\t X\nIRQ:   \t\t 1\nGPU UUID: \t %s\nVideo BIOS: \t 1\n", uuid) <
            0 ||
        fclose(file) != 0) {
        failed("write", path);
    }
}
