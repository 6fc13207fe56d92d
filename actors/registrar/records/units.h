/* actors/registrar/records/units.h - units: what is evicted together.
 *
 * A unit is a block with all its parts (unit = its GROUP record), or an object without a block
 * (unit = its own record). */
#ifndef SL_REGISTRAR_RECORDS_UNITS_H
#define SL_REGISTRAR_RECORDS_UNITS_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/policy.h"

/* bits of sl_links.flags; sl_links.disks has a bit for each disk that may hold bytes under the
 * record's key where its place does not say; of a block, for each disk whose reclaim keeps it */
enum {
    REG_FLAG_HOT = 1u << 0,     /* unit: in the list of units with a part in memory */
    REG_FLAG_COLD = 1u << 1,    /* unit: in the list of units on disk alone */
    REG_FLAG_KEPT_LISTS = 3u,   /* unit, both: in memory, in a list that eviction passes by */
    REG_FLAG_WRITING = 1u << 2, /* record: a DISK_WRITE of it is in flight */
    REG_FLAG_RECLAIMED =
        1u << 3,             /* record: its place was reclaimed; it need not be written again */
    REG_FLAG_HELD = 1u << 5, /* block: a hand-over holds it in memory */
    REG_FLAG_READ = 1u << 6, /* unit: somebody wanted it since it was last written to disk */
    REG_FLAG_PREFETCHED = 1u << 7, /* record in memory, and its unit: nobody wanted it since */
    REG_FLAG_KEPT = 1u << 8,       /* unit: stays while the segment of its parts goes */
    REG_FLAG_REFUSED = 1u << 9,    /* record and unit: it is not to be written to disk for now */
};
/* unit: when somebody wanted it last, in the highest bits; see reg_unit_age */
#define REG_WANTED_SHIFT 10u
#define REG_WANTED_MASK  0x3fu
/* The clock of that ticks so often while as much is written as the disks hold. */
#define REG_WANTED_TICKS 32u

struct reg_units {
    const struct reg_policy *policy;
    struct sl_density *density; /* of that policy */
    bool by_recency;            /* where its walk is */
    bool restoring;             /* a restart: what comes was here before */
    uint64_t expected;          /* so many of these the policy knows something of, at most */
    uint64_t learnt_at;         /* when what it learnt is noted again, in references */
    sl_ref learnt_note;
    sl_ref hashed;                 /* whose hash is known: it is being committed; 0: none */
    uint64_t hash;                 /* its */
    struct reg_judgement judged;   /* what the policy knew of the unit that left a list last */
    uint64_t judged_hash;          /* of its key; 0: the policy does not know it */
    uint64_t *wanted_at_ns;        /* density: when the last references of each step were made */
    uint32_t *used_at, used_count; /* lru: when each unit was used */
    struct reg_order hot, cold;    /* with something in memory; on disk alone */
    struct reg_order pinned, soft, leased; /* in memory, and passed by: leases.c */
    uint64_t prefetched_unread_bytes;
    uint64_t
        returning_at_ns;    /* when blocks were asked for last whose session comes back; 0: never */
    uint64_t written_bytes; /* to disks since the start: the clock of what was wanted when */
    uint32_t reclaim_count; /* segments that are going */
    uint32_t going[16];  /* of each disk; 0: none. REG_FLAG_KEPT counts for parts that are there */
    uint32_t held_count; /* blocks that are held, once for each hold */
    struct {
        sl_metric object_count, block_count, index_bytes, hard_pinned_count, soft_pinned_count,
            leased_count, dropped_count, prefetch_used_count, prefetch_lost_count;
    } metric;
};

struct reg_unit_parts {
    sl_ref refs[REG_PARTS_MAX];
    uint32_t count;
};
void reg_unit_parts(struct registrar *self, sl_ref unit, struct reg_unit_parts *out);
sl_ref reg_unit_of(const struct sl_entry *record);
bool reg_unit_visible(struct registrar *self, const struct sl_entry *record); /* to readers */
void reg_unit_place(struct registrar *self, sl_ref unit); /* newest of the list its parts ask for */
/* On disk alone until now, with a part in memory: to the list that it asks for. wanted: somebody
 * asked for it; who has read it touches it, too, and that is the same use. */
void reg_unit_return(struct registrar *self, sl_ref unit, bool wanted);
/* It leaves soon: what that needs of the index is fetched from memory, in steps 0 to 2, each of
 * which goes by what the one before it has fetched. unit may be 0. */
void reg_unit_fetch(struct registrar *self, sl_ref unit, uint32_t step);
uint64_t reg_unit_hash(const struct registrar *self, sl_ref unit); /* reg_hash of its key */
/* A unit of this hash is visible soon: what placing it needs is fetched from memory. */
void reg_unit_awaits(struct registrar *self, uint64_t hash);
/* It is visible: place, tell. group: NULL of an object. */
void reg_unit_committed(struct registrar *self, sl_ref unit, uint64_t hash,
                        const struct sl_group_info *group);
/* The same for one that is in no list: hot when it has something in memory. */
void reg_unit_list(struct registrar *self, sl_ref unit, bool memory);
/* From its list to the newest end of another: REG_FLAG_HOT or REG_FLAG_KEPT_LISTS. */
void reg_unit_move(struct registrar *self, sl_ref unit, uint16_t list);
uint64_t reg_unit_count(const struct registrar *self); /* all of them */
/* What its parts take in memory; in_memory: of those that are there, else of all as if they were.
 */
uint64_t reg_unit_space_bytes(struct registrar *self, sl_ref unit, bool in_memory);
sl_ref reg_unit_any(struct registrar *self);              /* what goes first; 0: there is none */
void reg_unit_touch(struct registrar *self, sl_ref unit); /* somebody wanted it */
/* And said this, right after. */
void reg_unit_said(struct registrar *self, sl_ref unit, const struct sl_said *said);
/* Its session comes back within so long. */
void reg_unit_returning(struct registrar *self, sl_ref unit, uint64_t for_ns);
/* It came from disk for somebody, who will touch it as well. */
void reg_unit_fetched(struct registrar *self, sl_ref unit);
void reg_unit_awaited(struct registrar *self, sl_ref unit); /* somebody is about to want it */
void reg_unit_passed(struct registrar *self, sl_ref unit);  /* its turn came, it could not go */
void reg_unit_sink(struct registrar *self, sl_ref unit);    /* it goes first */
/* The units of a list, as they go; 0: none. */
sl_ref reg_unit_first(struct registrar *self, struct reg_order *list);
sl_ref reg_unit_next(struct registrar *self, struct reg_order *list, bool goes);
/* What the policy knows of a unit that is in a list; 0: nothing. */
void reg_unit_judge(struct registrar *self, sl_ref unit, struct reg_judgement *out);
void reg_unit_prefetched(struct registrar *self, sl_ref unit, sl_ref part);
/* Of memory, one in so many may be blocks of sessions that come back, with what is before them in
 * their chains: beside what engines want kept. */
#define REG_RETURNING_SHARE 2u
uint64_t reg_units_kept_bytes(const struct registrar *self); /* of both */
/* Those whose time is over are kept no more. A reference looks at one of them, this at many. */
void reg_units_kept_look(struct registrar *self);
/* Of memory that is populated, what units may take: contributions may allow less. */
uint64_t reg_units_room_bytes(const struct registrar *self);
double reg_units_references_a_second(const struct registrar *self); /* lately; 0: not known */
/* How long ago somebody wanted it, in REG_WANTED_TICKS for as much written as the disks hold, up to
 * twice that; UINT32_MAX: not since it was written. */
uint32_t reg_unit_age(const struct registrar *self, sl_ref unit);
/* All of them are placed again, after a restart. */
void reg_unit_restored(struct registrar *self);
/* Notes in a block that was made how its request wants it. */
void reg_unit_want(struct registrar *self, sl_ref group, const struct sl_item_group *want);
void reg_unit_part_join(struct registrar *self, sl_ref group, sl_ref part);
/* sl_index_switch that keeps lists, parts and places right. */
sl_err reg_record_switch(struct registrar *self, sl_ref ref, const struct sl_extent *extent,
                         const struct sl_disk_place *place, sl_ref *fresh);
/* Takes the unit out for good: invisible at once, extents retired, places forgotten on disk when
 * forget. */
struct reg_drop {
    enum reg_ghost_reason reason;
    bool forget;
    bool told; /* then only where a disk has told of it: what comes up later is not meant */
    uint64_t remove_id; /* who waits for the tombstones, 0: nobody */
    uint32_t remove_index;
};
sl_err reg_unit_drop(struct registrar *self, sl_ref unit, const struct reg_drop *how);
/* The reservation's value takes the place of an object, in one step for readers; what is on disk of
 * that one is forgotten as how says. Errors: SL_ERR_NO_MEMORY (nothing happened). */
sl_err reg_object_replace(struct registrar *self, sl_ref old, sl_ref ref, struct sl_digest digest,
                          const struct reg_drop *how);
sl_err reg_unit_part_drop(struct registrar *self, sl_ref part,
                          const struct reg_drop *how); /* a hidden part */

extern const struct reg_part reg_units_part;

#endif
