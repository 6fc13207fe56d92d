/* actors/registrar/records/units.h - units: what is evicted together.
 *
 * A unit is a block with all its parts (unit = its GROUP record), or an object without a block
 * (unit = its own record). */
#ifndef SL_REGISTRAR_RECORDS_UNITS_H
#define SL_REGISTRAR_RECORDS_UNITS_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/policy.h"

/* Bits of sl_links.flags. sl_links.disks is a set of disks: of a record, those besides its place's
 * that may hold bytes under its key; of a block, those whose reclaim keeps it. */
enum {
    REG_FLAG_HOT = 1u << 0,        /* unit: in the list of units with a part in memory */
    REG_FLAG_COLD = 1u << 1,       /* unit: in the list of units on disk only */
    REG_FLAG_SKIPPED_LISTS = 3u,   /* unit, both bits: in memory, in a list that eviction skips */
    REG_FLAG_WRITING = 1u << 2,    /* record: a DISK_WRITE of it is in flight */
    REG_FLAG_RECLAIMED = 1u << 3,  /* record: its place was reclaimed; it is not written again */
    REG_FLAG_HELD = 1u << 5,       /* block: a hand-over holds it in memory */
    REG_FLAG_READ = 1u << 6,       /* unit: used since it was last written to disk */
    REG_FLAG_PREFETCHED = 1u << 7, /* record in memory, and its unit: not used since */
    REG_FLAG_KEPT = 1u << 8,       /* unit: kept while the log file of its parts is reclaimed */
    REG_FLAG_REFUSED = 1u << 9,    /* record and unit: not to be written to disk for now */
};
/* unit: the highest bits are the time of its last use; see reg_unit_age */
#define REG_USED_SHIFT 10u
#define REG_USED_MASK  0x3fu
/* Ticks of that clock while as many bytes are written as the disks hold. */
#define REG_USED_TICKS 32u

struct reg_units {
    const struct reg_policy *policy;
    struct sl_density *density; /* of the policy density */
    bool by_recency;            /* density: its walk has reached the list by recency */
    bool restoring;             /* a restart: units that join a list existed before */
    uint64_t expected;          /* units in memory that recovery will place, at most */
    uint64_t learnt_at;         /* references at which it next notes what it learnt */
    sl_ref learnt_note;
    sl_ref hashed;                 /* unit being committed, whose hash is known; 0: none */
    uint64_t hash;                 /* its key's hash */
    struct reg_judgement judged;   /* the policy's knowledge of the unit that left a list last */
    uint64_t judged_hash;          /* hash of that unit's key; 0: the policy did not know it */
    uint64_t *wanted_at_ns;        /* density: the time of every 64th reference */
    uint32_t *used_at, used_count; /* lru: when each unit was used */
    struct reg_order hot, cold;    /* with something in memory; on disk only */
    struct reg_order pinned, soft, leased; /* in memory, skipped by eviction: leases.c */
    uint64_t prefetched_unread_bytes;
    uint64_t returning_at_ns; /* when blocks of a returning session were last asked for; 0: never */
    uint64_t written_bytes;   /* to disks since the start: the clock of uses */
    uint32_t reclaim_count;   /* log files being reclaimed */
    uint32_t going[16];  /* by disk: that log file; 0: none. REG_FLAG_KEPT is for parts in it */
    uint32_t held_count; /* holds of blocks */
    struct {
        sl_metric object_count, block_count, index_bytes, hard_pinned_count, soft_pinned_count,
            leased_count, dropped_count, prefetch_used_count, prefetch_lost_count;
    } metric;
};

struct reg_unit_parts {
    sl_ref refs[REG_PARTS_MAX];
    uint32_t count;
};
/* Lists the unit's parts; an object is its own only part. */
void reg_unit_parts(struct registrar *self, sl_ref unit, struct reg_unit_parts *out);
sl_ref reg_unit_of(const struct sl_entry *record); /* its block, or the object itself */
bool reg_unit_visible(struct registrar *self, const struct sl_entry *record); /* to readers */
void reg_unit_place(struct registrar *self, sl_ref unit); /* into its list, as newest */
/* As reg_unit_place, for a unit that was on disk only and has a part in memory now. wanted: a
 * request waits for it; its reader touches it as well, which counts as one use. */
void reg_unit_return(struct registrar *self, sl_ref unit, bool wanted);
/* The unit leaves soon: prefetches what that reads of the index, in steps 0 to 2, each of which
 * uses what the one before fetched. unit may be 0. */
void reg_unit_prefetch_drop(struct registrar *self, sl_ref unit, uint32_t step);
uint64_t reg_unit_hash(const struct registrar *self, sl_ref unit); /* reg_hash of its key */
/* A unit with this key hash becomes visible soon: prefetches what placing it reads. */
void reg_unit_prefetch_place(struct registrar *self, uint64_t hash);
/* The unit is visible: places it and notifies the parts. group: NULL for an object. */
void reg_unit_committed(struct registrar *self, sl_ref unit, uint64_t hash,
                        const struct sl_group_info *group);
/* As reg_unit_place, for an object without pin or bundle that is in no list yet. */
void reg_unit_list(struct registrar *self, sl_ref unit, bool memory);
/* Moves it to the newest end of another list: REG_FLAG_HOT or REG_FLAG_SKIPPED_LISTS. */
void reg_unit_move(struct registrar *self, sl_ref unit, uint16_t list);
uint64_t reg_unit_count(const struct registrar *self); /* in all lists */
/* Memory that its parts take; in_memory: only those in memory count, else all as if they were. */
uint64_t reg_unit_space_bytes(struct registrar *self, sl_ref unit, bool in_memory);
sl_ref reg_unit_any(struct registrar *self);              /* first to be evicted; 0: none */
void reg_unit_touch(struct registrar *self, sl_ref unit); /* it was used */
/* Hints about that use. */
void reg_unit_hint(struct registrar *self, sl_ref unit, const struct sl_packed_hints *said);
/* Its session is expected within for_ns. */
void reg_unit_session_expected(struct registrar *self, sl_ref unit, uint64_t for_ns);
/* It was read from disk for a request, whose reader touches it as well. */
void reg_unit_read_for_use(struct registrar *self, sl_ref unit);
void reg_unit_use_expected(struct registrar *self, sl_ref unit); /* a request is about to use it */
void reg_unit_to_newest(struct registrar *self, sl_ref unit);    /* not evicted: newest */
void reg_unit_evict_first(struct registrar *self, sl_ref unit);  /* evict it first */
/* The units of a list in the order of eviction; 0: the end. */
sl_ref reg_unit_first(struct registrar *self, struct reg_order *list);
sl_ref reg_unit_next(struct registrar *self, struct reg_order *list, bool goes);
/* The policy's knowledge of a listed unit; zeroed if there is none. */
void reg_unit_judge(struct registrar *self, sl_ref unit, struct reg_judgement *out);
/* The part was read ahead of use: it counts as prefetched until the unit is used. */
void reg_unit_prefetched(struct registrar *self, sl_ref unit, sl_ref part);
/* Blocks of returning sessions, with those before them in their chains, may take one part in this
 * number of memory, besides blocks with retention. */
#define REG_RETURNING_SHARE 2u
uint64_t reg_units_retained_bytes(const struct registrar *self); /* returning and retention */
/* Releases kept units whose time is over. Each reference checks one, this checks many. */
void reg_units_retention_check(struct registrar *self);
/* Memory that units may use: what is populated, at most what is contributed. */
uint64_t reg_units_memory_bytes(const struct registrar *self);
double reg_units_references_a_second(const struct registrar *self); /* lately; 0: unknown */
/* Ticks (REG_USED_TICKS) since the unit's last use, up to twice REG_USED_TICKS; UINT32_MAX: not
 * used since it was written to disk. */
uint32_t reg_unit_age(const struct registrar *self, sl_ref unit);
/* After a restart: all units are placed. */
void reg_unit_restored(struct registrar *self);
/* Writes what the request says of a new block (chain, hints) into the block's record. */
void reg_unit_want(struct registrar *self, sl_ref group, const struct sl_item_group *want);
/* Adds the part to its block's list. */
void reg_unit_part_join(struct registrar *self, sl_ref group, sl_ref part);
/* sl_index_switch that also keeps lists, parts and places right. */
sl_err reg_record_switch(struct registrar *self, sl_ref ref, const struct sl_extent *extent,
                         const struct sl_disk_place *place, sl_ref *fresh);
/* Parameters of reg_unit_drop, which removes a unit permanently: it is invisible at once, its
 * extents are retired. forget: its copies on disk get tombstones. */
struct reg_drop {
    enum reg_ghost_reason reason;
    bool forget;
    bool reported;      /* forget: only on disks that reported it, not on all that may have it */
    uint64_t remove_id; /* of the REMOVE that waits for the tombstones; 0: none */
    uint32_t remove_index;
};
sl_err reg_unit_drop(struct registrar *self, sl_ref unit, const struct reg_drop *how);
/* The reservation's value replaces an object, in one step for readers; `how` says what happens to
 * the old one's copies on disk. Errors: SL_ERR_NO_MEMORY (nothing happened). */
sl_err reg_object_replace(struct registrar *self, sl_ref old, sl_ref ref, struct sl_digest digest,
                          const struct reg_drop *how);
/* Drops a part of a block that is not visible. */
sl_err reg_unit_part_drop(struct registrar *self, sl_ref part, const struct reg_drop *how);

extern const struct reg_part reg_units_part;

#endif
