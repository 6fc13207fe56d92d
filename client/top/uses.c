/* client/top/uses.c - see the header. */
#include "client/top/uses.h"
#include "ipc/sl_pins.h"
#include "runtime/sl_base.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_config.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCESSES_ALL 32768u /* looked at in one reading, of all readers: about 20 ms */
#define ACCESSES_MIN 128u   /* of one of many; TOP_READERS_MAX of them make ACCESSES_ALL */
#define ACCESSES_MAX 8192u  /* of one of few */
#define BATCH        512u
#define BATCHES_MAX  2048u /* the largest ring; a reader that goes on noting ends no reading */
#define GONE         "(keys gone since)"

struct reader {
    char name[64]; /* of the segment */
    struct sl_pins_view *pins;
};
struct top_uses {
    char shm_dir[sizeof(((struct sl_paths *)0)->shm_dir)];
    struct sl_index_view *view;
    struct reader readers[TOP_READERS_MAX];
    uint32_t reader_count;
    bool crowded;      /* a reader found no place: when it gets one, what it noted is old */
    uint64_t begun_ns; /* of the last reading; 0: there was none */
    double seconds;
    struct top_groups used;
    struct sl_access accesses[ACCESSES_MAX + BATCH];
    struct top_group joined[2 * (TOP_GROUPS_MAX + 1)];
};

sl_err top_uses_create(const char *shm_dir, struct top_uses **out, struct sl_error *why)
{
    struct top_uses *made = calloc(1, sizeof *made);
    if (made == NULL || top_groups_init(&made->used, NULL) != SL_OK) {
        free(made);
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
        top_groups_fini(&(*uses)->used);
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
        return; /* its own value: no use */
    }
    if (sl_index_find_ref(uses->view, access->ref, access->generation, &entry, key) == SL_OK) {
        top_group_of(key, entry.key_length, grouping, name);
    }
    top_groups_of(&uses->used, name)->uses += weight;
}

/* Takes all that was noted, and keeps the first of it, `most` at most, in uses->accesses. All: how many
 * there were, lost ones included. */
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

/* ---- all of them ---- */

static bool is_read(const struct top_uses *uses, const char *name)
{
    for (uint32_t i = 0; i < uses->reader_count; i++) {
        if (strcmp(uses->readers[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Those that came since. What one of them noted is new, unless it was there before and not read. */
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
            continue; /* gone this moment, or of another release */
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
    top_groups_clear(&uses->used);
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
        struct top_group *used = top_groups_find(&uses->used, groups[i].name);
        uses->joined[i] = groups[i];
        uses->joined[i].uses = used != NULL ? used->uses / uses->seconds : 0;
        if (used != NULL) {
            used->objects = 1; /* it is among them */
        }
    }
    for (uint32_t i = 0; i < uses->used.count; i++) {
        struct top_group *used = &uses->used.rows[i];
        if (used->objects == 0) {
            uses->joined[all] = *used;
            uses->joined[all++].uses /= uses->seconds;
        }
        used->objects = 0; /* as it was, for the next call */
    }
    *joined_count = all;
    return uses->joined;
}
