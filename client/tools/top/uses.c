/* client/tools/top/uses.c - groups of keys and their uses; see uses.h. */
#include "client/tools/top/uses.h"
#include "ipc/shm/sl_pins.h"
#include "runtime/base/sl_base.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_config.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define ACCESSES_ALL 32768u /* examined in one reading, of all readers: about 20 ms */
#define ACCESSES_MIN 128u   /* of each reader, if there are TOP_READERS_MAX */
#define ACCESSES_MAX 8192u  /* of each reader, if there are few */
#define BATCH        512u
#define BATCHES_MAX  2048u /* the largest ring: bounds a reading while a reader keeps adding */
#define GONE         "(keys gone since)"
#define MODEL_DIGITS 32u /* of a key of ours: MODEL/BLOCK/RANK/POOL */

/* ---- names ---- */

static const char *last_of(const char *key, uint32_t length)
{
    const char *found = NULL;
    for (uint32_t i = 0; i < length; i++) {
        found = key[i] == '/' || key[i] == '@' ? &key[i] : found;
    }
    return found;
}

static bool is_own(const char *key, uint32_t length)
{
    uint32_t i = 0;
    while (i < MODEL_DIGITS && i < length && isxdigit((unsigned char)key[i])) {
        i++;
    }
    return i == MODEL_DIGITS && i < length && key[i] == '/';
}

/* Control characters and bytes beyond ASCII become '?'. */
static void name_add(char out[TOP_GROUP_BYTES], const char *from, size_t length)
{
    size_t at = strlen(out);
    for (size_t i = 0; i < length && at + 1 < TOP_GROUP_BYTES; i++) {
        unsigned char byte = (unsigned char)from[i];
        out[at++] = byte < 0x20 || byte >= 0x7f ? '?' : (char)byte;
    }
    out[at] = '\0';
}

void top_group_of(const char *key, uint32_t length, enum top_grouping grouping,
                  char out[TOP_GROUP_BYTES])
{
    out[0] = '\0';
    if (is_own(key, length)) {
        const char *rank = memchr(&key[MODEL_DIGITS + 1], '/', length - MODEL_DIGITS - 1);
        name_add(out, key, grouping == TOP_BY_MODEL ? MODEL_DIGITS : 12);
        if (grouping == TOP_BY_PREFIX && rank != NULL) {
            name_add(out, "/*", 2);
            name_add(out, rank, length - (size_t)(rank - key));
        }
        return;
    }
    const char *end = grouping == TOP_BY_PREFIX ? last_of(key, length) : memchr(key, '@', length);
    if (grouping == TOP_BY_MODEL && end != NULL &&
        (end - key == 4 || end - key == 6) && /* older keys of LMCache begin with the engine */
        (strncmp(key, "vllm@", 5) == 0 || strncmp(key, "sglang@", 7) == 0)) {
        const char *next = memchr(end + 1, '@', length - (size_t)(end + 1 - key));
        key = next != NULL ? end + 1 : key;
        end = next != NULL ? next : end;
    } else if (end == NULL && grouping == TOP_BY_MODEL) {
        end = memchr(key, '/', length);
    }
    if (end == NULL || end == key) {
        name_add(out, "(keys without a prefix)", 23);
    } else {
        name_add(out, key, (size_t)(end - key));
    }
}

/* ---- the table ---- */

/* The slot with that name, or the free slot for it. */
static uint16_t *slot_of(struct top_groups *groups, const char *name)
{
    uint32_t slot = (uint32_t)XXH3_64bits(name, strlen(name)) & (TOP_GROUP_SLOTS - 1);
    while (groups->slots[slot] != 0 &&
           strcmp(groups->rows[groups->slots[slot] - 1].name, name) != 0) {
        slot = (slot + 1) & (TOP_GROUP_SLOTS - 1);
    }
    return &groups->slots[slot];
}

struct top_group *top_groups_of(struct top_groups *groups, const char *name)
{
    uint16_t *slot = slot_of(groups, name);
    if (*slot == 0 && groups->count >= TOP_GROUPS_MAX) { /* the last row is for these */
        name = "(others)";
        slot = slot_of(groups, name);
    }
    if (*slot == 0) {
        (void)snprintf(groups->rows[groups->count++].name, TOP_GROUP_BYTES, "%s", name);
        *slot = (uint16_t)groups->count;
    }
    return &groups->rows[*slot - 1];
}

/* ---- uses ---- */

struct reader {
    char name[64]; /* of the pin file */
    struct sl_pins_view *pins;
};
struct top_uses {
    char shm_dir[sizeof(((struct sl_paths *)0)->shm_dir)];
    struct sl_index_view *view;
    struct reader readers[TOP_READERS_MAX];
    uint32_t reader_count;
    bool crowded;      /* a reader had no slot: when it gets one, its first accesses are old */
    uint64_t begun_ns; /* start of the last reading; 0: none */
    double seconds;
    struct top_groups used;
    struct sl_access accesses[ACCESSES_MAX + BATCH];
    struct top_group joined[2 * (TOP_GROUPS_MAX + 1)];
};

sl_err top_uses_create(const char *shm_dir, struct top_uses **out, struct sl_error *why)
{
    struct top_uses *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for uses of keys");
    }
    (void)snprintf(made->shm_dir, sizeof made->shm_dir, "%s", shm_dir);
    *out = made;
    return SL_OK;
}

void top_uses_destroy(struct top_uses **uses)
{
    if (*uses != NULL) {
        for (uint32_t i = 0; i < (*uses)->reader_count; i++) {
            sl_pins_view_close(&(*uses)->readers[i].pins);
        }
        sl_index_view_close(&(*uses)->view);
        free(*uses);
        *uses = NULL;
    }
}

/* ---- one reader ---- */

static void access_add(struct top_uses *uses, const struct sl_access *access, double weight,
                       enum top_grouping grouping)
{
    char key[SL_KEY_BYTES_MAX + 1];
    char name[TOP_GROUP_BYTES] = GONE;
    struct sl_entry entry;
    if ((access->generation & SL_ACCESS_STORED) != 0) {
        return; /* a value that the process stored itself does not count as a use */
    }
    if (sl_index_find_ref(uses->view, access->ref, access->generation, &entry, key) == SL_OK) {
        top_group_of(key, entry.key_length, grouping, name);
    }
    top_groups_of(&uses->used, name)->uses += weight;
}

/* Removes all accesses from a reader's ring and keeps the first `most` in uses->accesses. *all: the
 * number of accesses, including overwritten ones. */
static uint32_t reader_drain(struct top_uses *uses, const struct reader *reader, uint32_t most,
                             double *all)
{
    uint32_t kept = 0;
    uint64_t lost = sl_pins_view_lost(reader->pins);
    *all = 0;
    for (uint32_t i = 0; i < BATCHES_MAX; i++) {
        uint32_t count = sl_pins_view_drain(reader->pins, &uses->accesses[kept], BATCH);
        *all += count;
        kept = SL_MIN(kept + count, most);
        if (count < BATCH) {
            break;
        }
    }
    *all += (double)(sl_pins_view_lost(reader->pins) - lost);
    return kept;
}

static void reader_add(struct top_uses *uses, const struct reader *reader,
                       enum top_grouping grouping)
{
    double all = 0;
    uint32_t share = ACCESSES_ALL / SL_MAX(uses->reader_count, 1u);
    share = SL_MIN(SL_MAX(share, ACCESSES_MIN), ACCESSES_MAX);
    uint32_t kept = reader_drain(uses, reader, share, &all);
    for (uint32_t i = 0; i < kept; i++) {
        access_add(uses, &uses->accesses[i], all / kept, grouping);
    }
}

/* ---- all readers ---- */

static bool is_read(const struct top_uses *uses, const char *name)
{
    for (uint32_t i = 0; i < uses->reader_count; i++) {
        if (strcmp(uses->readers[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Opens readers that appeared since. Their accesses count, unless the reader existed before but had
 * no slot. */
static void readers_find(struct top_uses *uses, bool counted, enum top_grouping grouping)
{
    double all = 0;
    const struct dirent *entry = NULL;
    SL_AUTO(closedir) DIR *directory = opendir(uses->shm_dir);
    bool was_crowded = uses->crowded;
    uses->crowded = false;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        struct reader *reader = &uses->readers[SL_MIN(uses->reader_count, TOP_READERS_MAX - 1)];
        if (strncmp(entry->d_name, "pins.", 5) != 0 ||
            strlen(entry->d_name) >= sizeof reader->name || is_read(uses, entry->d_name)) {
            continue;
        }
        if (uses->reader_count == TOP_READERS_MAX) {
            uses->crowded = true;
            break;
        }
        *reader = (struct reader){.pins = NULL};
        if (sl_pins_view_open(uses->shm_dir, entry->d_name, &reader->pins, NULL) != SL_OK) {
            continue; /* it just ended, or is of another release */
        }
        (void)snprintf(reader->name, sizeof reader->name, "%.63s", entry->d_name);
        uses->reader_count++;
        if (counted && !was_crowded) {
            reader_add(uses, reader, grouping);
        } else {
            (void)reader_drain(uses, reader, 0, &all);
        }
    }
}

sl_err top_uses_read(struct top_uses *uses, enum top_grouping grouping, struct sl_error *why)
{
    sl_err err = sl_index_view_follow(uses->shm_dir, &uses->view, why);
    if (err != SL_OK) {
        return err;
    }
    bool counted = uses->begun_ns != 0;
    uint64_t now_ns = sl_clock_monotonic_ns();
    uses->seconds = (double)SL_MAX(now_ns - uses->begun_ns, UINT64_C(1)) / SL_NS_PER_S;
    uses->begun_ns = now_ns;
    memset(&uses->used, 0, sizeof uses->used);
    for (uint32_t i = 0; i < uses->reader_count;) {
        struct reader *reader = &uses->readers[i];
        bool stays = sl_pins_view_linked(reader->pins) && !sl_pins_view_is_short(reader->pins);
        reader_add(uses, reader, grouping);
        if (stays) {
            i++;
            continue;
        }
        sl_pins_view_close(&reader->pins);
        *reader = uses->readers[--uses->reader_count];
    }
    readers_find(uses, counted, grouping);
    return SL_OK;
}

const struct top_group *top_uses_join(struct top_uses *uses, const struct top_group *groups,
                                      uint32_t count, uint32_t *joined_count)
{
    uint32_t all = SL_MIN(count, TOP_GROUPS_MAX + 1);
    for (uint32_t i = 0; i < all; i++) {
        uint16_t number = *slot_of(&uses->used, groups[i].name);
        uses->joined[i] = groups[i];
        if (number != 0) {
            uses->joined[i].uses = uses->used.rows[number - 1].uses / uses->seconds;
            uses->used.rows[number - 1].objects = 1; /* marks it as joined */
        }
    }
    for (uint32_t i = 0; i < uses->used.count; i++) {
        struct top_group *used = &uses->used.rows[i];
        if (used->objects == 0) {
            uses->joined[all] = *used;
            uses->joined[all++].uses /= uses->seconds;
        }
        used->objects = 0; /* reset for the next call */
    }
    *joined_count = all;
    return uses->joined;
}
