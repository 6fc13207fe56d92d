/* runtime/net/nics/places.c - locations of PCI functions, and how near they are. */
#include "runtime/net/nics/internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Parses low..high hexadecimal digits. Gives the rest of the text; NULL: invalid. */
static const char *hex_take(const char *at, uint32_t low, uint32_t high, uint64_t *out)
{
    char digits[17] = "";
    size_t length = strspn(at, "0123456789abcdefABCDEF");
    if (length < low || length > high) {
        return NULL;
    }
    memcpy(digits, at, length);
    return sl_parse_hex(digits, out) ? at + length : NULL;
}

/* The domain of DDDD:BB:DD.F has up to 8 digits (VMD). */
bool nics_address_parse(const char *text, uint64_t *out)
{
    uint64_t domain = 0, bus = 0, device = 0, function = 0;
    const char *at = hex_take(text, 4, 8, &domain);
    at = at != NULL && *at == ':' ? hex_take(at + 1, 2, 2, &bus) : NULL;
    at = at != NULL && *at == ':' ? hex_take(at + 1, 2, 2, &device) : NULL;
    at = at != NULL && *at == '.' ? hex_take(at + 1, 1, 1, &function) : NULL;
    if (at == NULL || *at != '\0' || device > 31 || function > 7) {
        return false;
    }
    *out = domain << 16 | bus << 8 | device << 3 | function;
    return true;
}

/* Whether the text is pciDDDD:BB. */
static bool is_bridge(const char *text)
{
    uint64_t domain = 0, bus = 0;
    const char *at = strncmp(text, "pci", 3) == 0 ? hex_take(text + 3, 4, 8, &domain) : NULL;
    at = at != NULL && *at == ':' ? hex_take(at + 1, 2, 2, &bus) : NULL;
    return at != NULL && *at == '\0';
}

/* A host bridge below another one (VMD) restarts the path: it is a controller of its own. */
static void step_take(struct sl_pci_place *place, const char *step, bool *below)
{
    uint64_t address = 0;
    if (is_bridge(step)) {
        (void)snprintf(place->bridge, sizeof(place->bridge), "%s", step);
        place->depth = 0;
        *below = true;
    } else if (*below && nics_address_parse(step, &address) && place->depth < SL_PCI_DEPTH_MAX) {
        place->steps[place->depth++] = address;
    } else {
        *below = false; /* the rest of the path is inside the function */
    }
}

void sl_pci_place_read(const char *path, struct sl_pci_place *out)
{
    struct sl_pci_place place = {.numa_node = -1};
    bool below = false;
    char real[PATH_MAX], file[PATH_MAX + 16], text[NICS_TEXT_BYTES], *rest = NULL;
    *out = place;
    if (realpath(path, real) == NULL) {
        return;
    }
    (void)snprintf(file, sizeof(file), "%s/numa_node", real);
    for (char *step = strtok_r(real, "/", &rest); step != NULL; step = strtok_r(NULL, "/", &rest)) {
        step_take(&place, step, &below);
    }
    if (place.depth == 0) {
        return;
    }
    uint64_t node = 0;
    if (nics_text_read(file, text) && sl_parse_within(text, 0, 1023, &node)) {
        place.numa_node = (int32_t)node;
    }
    *out = place;
}

const char *sl_near_text(enum sl_near near)
{
    static const char *const texts[] = {"same switch", "same root port", "same host bridge",
                                        "same socket", "any"};
    return (size_t)near < SL_COUNT(texts) ? texts[near] : "?";
}

enum sl_near sl_pci_near(const struct sl_pci_place *a, const struct sl_pci_place *b, uint32_t *hops)
{
    uint32_t shared = 0, apart = 0;
    enum sl_near near = SL_NEAR_ANY;
    bool known = a->depth > 0 && b->depth > 0;
    bool bridge = known && a->bridge[0] != '\0' && strcmp(a->bridge, b->bridge) == 0;
    while (bridge && shared < a->depth && shared < b->depth &&
           a->steps[shared] == b->steps[shared]) {
        shared++;
    }
    if (shared > 0) { /* one root port; one switch if at most one port is between it and each */
        apart = a->depth + b->depth - 2 * shared;
        bool direct = a->depth - shared <= 2 && b->depth - shared <= 2;
        near = direct ? SL_NEAR_SWITCH : SL_NEAR_ROOT_PORT;
    } else if (bridge) {
        near = SL_NEAR_BRIDGE;
    } else if (known && a->numa_node >= 0 && a->numa_node == b->numa_node) {
        near = SL_NEAR_SOCKET;
    }
    if (hops != NULL) {
        *hops = apart;
    }
    return near;
}
