/* runtime/net/nics/scan.c - reads SYSFS/class/infiniband, and DIRECTORY/PCI-ADDRESS/information. */
#include "runtime/net/nics/internal.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GIDS_MAX 256u
#define DEVICES  "class/infiniband"

/* ---- files ---- */

bool nics_text_read(const char *path, char out[NICS_TEXT_BYTES])
{
    struct stat stat;
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    out[0] = '\0';
    if (fd < 0 || fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) {
        return false;
    }
    ssize_t length = read(fd, out, NICS_TEXT_BYTES - 1);
    out[length > 0 ? length : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    for (char *at = out; *at != '\0'; at++) {
        *at = isprint((unsigned char)*at) ? *at : '?';
    }
    return out[0] != '\0';
}

static bool line_of(const char *directory, const char *name, char out[NICS_TEXT_BYTES])
{
    char path[PATH_MAX];
    out[0] = '\0';
    int length = snprintf(path, sizeof(path), "%s/%s", directory, name);
    return length > 0 && (size_t)length < sizeof(path) && nics_text_read(path, out);
}

static bool number_of(const char *directory, const char *name, uint64_t *out)
{
    char text[NICS_TEXT_BYTES];
    const char *rest = NULL;
    return line_of(directory, name, text) && sl_parse_digits(text, out, &rest) == SL_OK;
}

static bool name_is_clean(const char *name, size_t room)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t length = strlen(name);
    return length > 0 && length < room && name[0] != '.' && strspn(name, letters) == length;
}

/* ---- ports ---- */

static uint32_t gids_count(const char *port, bool infiniband)
{
    char name[64], gid[NICS_TEXT_BYTES], type[NICS_TEXT_BYTES];
    uint32_t usable = 0;
    for (uint32_t i = 0; i < GIDS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "gids/%u", i);
        if (!line_of(port, name, gid)) {
            break;
        }
        (void)snprintf(name, sizeof(name), "gid_attrs/types/%u", i);
        (void)line_of(port, name, type);
        bool null = strspn(gid, "0:") == strlen(gid);
        bool link_local = strncasecmp(gid, "fe80", 4) == 0;
        usable += !null && (infiniband || (!link_local && strcmp(type, "RoCE v2") == 0));
    }
    return usable;
}

/* "200 Gb/sec (4X HDR)", "2.5 Gb/sec (1X SDR)" */
static uint64_t rate_parse(const char *text)
{
    char number[16] = "";
    double gbit_s = 0;
    size_t length = strspn(text, "0123456789.");
    if (length == 0 || length >= sizeof(number) || strncmp(text + length, " Gb/sec", 7) != 0) {
        return 0;
    }
    memcpy(number, text, length);
    return sl_parse_real(number, &gbit_s) && gbit_s >= 0 && gbit_s < 1e6 ? (uint64_t)(gbit_s * 1e3)
                                                                         : 0;
}

/* The port's counters are in units of 4 bytes. A software device has none, so those of its network
 * device are read. */
static void counters_read(const char *sysfs, const char *port, struct sl_nic *nic)
{
    char netdev[PATH_MAX];
    uint64_t sent = 0, received = 0;
    nic->counted = number_of(port, "counters/port_xmit_data", &sent) &&
                   number_of(port, "counters/port_rcv_data", &received);
    nic->sent_bytes = sent * 4;
    nic->received_bytes = received * 4;
    if (!nic->counted && nic->netdev[0] != '\0') {
        (void)snprintf(netdev, sizeof(netdev), "%s/class/net/%s", sysfs, nic->netdev);
        nic->counted = number_of(netdev, "statistics/tx_bytes", &nic->sent_bytes) &&
                       number_of(netdev, "statistics/rx_bytes", &nic->received_bytes);
    }
}

/* "4: ACTIVE" */
static bool state_read(const char *port, struct sl_nic *nic)
{
    char text[NICS_TEXT_BYTES];
    bool there = line_of(port, "state", text);
    const char *colon = strchr(text, ':');
    const char *word = colon != NULL ? colon + 1 + strspn(colon + 1, " ") : text;
    (void)snprintf(nic->state, sizeof(nic->state), "%.23s", word);
    return there;
}

static bool port_path(const char *sysfs, const struct sl_nic *nic, char out[PATH_MAX])
{
    int length =
        snprintf(out, PATH_MAX, "%s/" DEVICES "/%s/ports/%u", sysfs, nic->device, nic->port);
    return length > 0 && length < PATH_MAX;
}

bool sl_nic_refresh(const char *sysfs, struct sl_nic *nic)
{
    char port[PATH_MAX];
    if (!port_path(sysfs, nic, port) || !state_read(port, nic)) {
        return false;
    }
    counters_read(sysfs, port, nic);
    return true;
}

static void port_read(const char *sysfs, struct sl_nic *nic)
{
    char port[PATH_MAX], path[PATH_MAX], text[NICS_TEXT_BYTES];
    uint64_t mtu = 0;
    if (!port_path(sysfs, nic, port)) {
        return;
    }
    if (line_of(port, "gid_attrs/ndevs/0", text) && name_is_clean(text, sizeof(nic->netdev))) {
        (void)snprintf(nic->netdev, sizeof(nic->netdev), "%.15s", text);
        (void)snprintf(path, sizeof(path), "%s/class/net/%s", sysfs, nic->netdev);
        if (number_of(path, "mtu", &mtu)) {
            nic->mtu_bytes = (uint32_t)SL_MIN(mtu, (uint64_t)UINT32_MAX);
        }
    }
    (void)line_of(port, "link_layer", text);
    (void)snprintf(nic->layer, sizeof(nic->layer), "%.23s", text);
    (void)line_of(port, "rate", text);
    nic->rate_mbit_s = rate_parse(text);
    nic->gid_count = gids_count(port, strcmp(nic->layer, "InfiniBand") == 0);
    (void)sl_nic_refresh(sysfs, nic);
}

/* ---- devices ---- */

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Lists entries with valid names in natural order; *skipped counts the others. Gives the number;
 * the caller frees names[i] and names. */
static uint32_t entries_list(const char *path, size_t room, struct dirent ***names,
                             uint32_t *skipped)
{
    uint32_t count = 0;
    *names = NULL;
    int all = scandir(path, names, is_visible, versionsort);
    for (int i = 0; i < all; i++) {
        struct dirent *entry = (*names)[i];
        if (name_is_clean(entry->d_name, room)) {
            (*names)[count++] = entry;
        } else {
            free(entry);
            (*skipped)++;
        }
    }
    return count;
}

static void entries_free(struct dirent **names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
}

/* Reads the location of the device and the address of its physical function. */
static void place_read(const char *sysfs, const char *device, struct sl_nic *nic)
{
    char path[PATH_MAX], real[PATH_MAX], text[NICS_TEXT_BYTES];
    (void)snprintf(path, sizeof(path), "%s/" DEVICES "/%s/device", sysfs, device);
    sl_pci_place_read(path, &nic->place);
    if (nic->place.depth > 0) {
        nic->physical = nic->place.steps[nic->place.depth - 1];
        (void)snprintf(path, sizeof(path), "%s/" DEVICES "/%s/device/physfn", sysfs, device);
        const char *name = realpath(path, real) != NULL ? strrchr(real, '/') : NULL;
        nic->virtual_function = name != NULL && nics_address_parse(name + 1, &nic->physical);
        return;
    }
    /* A software device sends through its network device. */
    (void)snprintf(path, sizeof(path), "%s/" DEVICES "/%s", sysfs, device);
    if (line_of(path, "parent", text) && name_is_clean(text, sizeof(nic->netdev))) {
        (void)snprintf(path, sizeof(path), "%s/class/net/%.15s/device", sysfs, text);
        sl_pci_place_read(path, &nic->place);
    }
}

static void device_read(const char *sysfs, const char *device, struct sl_nics *out)
{
    char path[PATH_MAX];
    struct dirent **ports;
    struct sl_nic common = {.place = {.numa_node = -1}};
    int length = snprintf(path, sizeof(path), "%s/" DEVICES "/%s/ports", sysfs, device);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        out->skipped++;
        return;
    }
    (void)snprintf(common.device, sizeof(common.device), "%.47s", device);
    place_read(sysfs, device, &common);
    uint32_t count = entries_list(path, 4, &ports, &out->skipped);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t port = 0;
        if (!sl_parse_within(ports[i]->d_name, 1, UINT8_MAX, &port) || out->count == SL_NICS_MAX) {
            out->skipped++;
            continue;
        }
        struct sl_nic *nic = &out->at[out->count++];
        *nic = common;
        nic->port = (uint32_t)port;
        (void)snprintf(nic->name, sizeof(nic->name), "%s", common.device);
        if (count > 1) {
            (void)snprintf(nic->name, sizeof(nic->name), "%s:%u", common.device, nic->port);
        }
        port_read(sysfs, nic);
    }
    entries_free(ports, count);
}

void sl_nics_scan(const char *sysfs, struct sl_nics *out)
{
    char path[PATH_MAX];
    struct dirent **devices;
    memset(out, 0, sizeof(*out));
    int length = snprintf(path, sizeof(path), "%s/" DEVICES, sysfs);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return;
    }
    uint32_t count = entries_list(path, sizeof(out->at[0].device), &devices, &out->skipped);
    for (uint32_t i = 0; i < count; i++) {
        device_read(sysfs, devices[i]->d_name, out);
    }
    entries_free(devices, count);
}

bool sl_nic_is_active(const struct sl_nic *nic)
{
    return strcmp(nic->state, "ACTIVE") == 0;
}

bool sl_nic_is_usable(const struct sl_nic *nic)
{
    return sl_nic_is_active(nic) && nic->gid_count > 0;
}

const struct sl_nic *sl_nics_find(const struct sl_nics *nics, const char *name)
{
    const struct sl_nic *found = NULL;
    for (uint32_t i = 0; i < nics->count; i++) {
        const struct sl_nic *nic = &nics->at[i];
        char whole[SL_NIC_NAME_BYTES];
        (void)snprintf(whole, sizeof(whole), "%s:%u", nic->device, nic->port);
        if (strcmp(name, whole) == 0) {
            return nic;
        }
        if (strcmp(name, nic->device) == 0 &&
            (found == NULL || (!sl_nic_is_usable(found) && sl_nic_is_usable(nic)))) {
            found = nic;
        }
    }
    return found;
}

/* ---- GPUs ---- */

static bool gpu_read_uuid(const char *directory, const char *address, char uuid[48])
{
    char path[512], line[256];
    bool found = false;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s/information", directory, address) >=
        sizeof(path)) {
        return false;
    }
    SL_AUTO(fclose) FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        found = sscanf(line, "GPU UUID: %47s", uuid) == 1;
    }
    return found;
}

uint32_t sl_gpus_list(const char *directory, const char *sysfs, struct sl_gpu gpus[SL_GPUS_MAX])
{
    char path[PATH_MAX];
    struct dirent **names = NULL;
    int name_count = scandir(directory, &names, is_visible, alphasort);
    uint32_t count = 0;
    for (int i = 0; i < name_count; i++) {
        const char *address = names[i]->d_name;
        if (count < SL_GPUS_MAX && gpu_read_uuid(directory, address, gpus[count].uuid)) {
            struct sl_gpu *gpu = &gpus[count++];
            gpu->index = (uint32_t)i;
            gpu->place = (struct sl_pci_place){.numa_node = -1};
            (void)snprintf(path, sizeof(path), "%s/bus/pci/devices/%.32s",
                           sysfs == NULL ? "" : sysfs, address);
            if (sysfs != NULL) {
                sl_pci_place_read(path, &gpu->place);
            }
        }
        free(names[i]);
    }
    free(names);
    return count;
}
