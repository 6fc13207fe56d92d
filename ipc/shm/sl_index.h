/* ipc/shm/sl_index.h - the shared-memory hash table from key to where the value is, and every claim
 * on an extent. Written by the registrar alone, mapped read-only by everyone else.
 *
 * Layout. Header page; a table of 64-byte buckets (one word of overflow count, seven slots: 32-bit
 * tag and 32-bit record reference); a region of records in size classes of 64 bytes (slabs of 64
 * KiB, populated when first used: sparse until then). A probe starts at the bucket of the hash and
 * goes on to the next one while the bucket's overflow count is not zero, SL_INDEX_PROBE_MAX buckets
 * at most.
 *
 * Records are type-stable: freed memory stays a record (a slab whose records are all free may take
 * another class; readers notice by re-checking the slot too). Each begins with a `version` (unique
 * for all time, from the arena's generation counter; 0: being written or free). Readers re-check it
 * after reading: changed means retry. A committed record is never edited in place: a change writes
 * a fresh record and switches the slot by one 8-byte release store; then the old version becomes 0.
 * So a registrar killed anywhere stops no reader.
 *
 * A record's `kind` is the claim on its extent: RESERVED, COMMITTED, RETIRED, QUARANTINED,
 * PROMOTING. It is written before the extent is used. With owner and writer it says, after any
 * crash, which process may still touch the bytes. Blocks: a GROUP record under the key MODEL/BLOCK
 * holds the state word that all parts point at. */
#ifndef SL_INDEX_H
#define SL_INDEX_H

#include "ipc/shm/sl_arena.h"
#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_env.h"

#define SL_INDEX_PROBE_MAX 256u /* buckets a key may lie behind its own */
#define SL_GROUP_PARTS_MAX 512u
#define SL_BLOB_BYTES_MAX  61440u

typedef uint32_t sl_ref; /* number of a 64-byte unit of the record region; 0: none */

enum sl_record_kind {
    SL_RECORD_FREE = 0,
    SL_RECORD_RESERVED = 1,    /* granted to writer; not in the table */
    SL_RECORD_COMMITTED = 2,   /* in the table (visible when its group is, if it has one) */
    SL_RECORD_RETIRED = 3,     /* out of the table, its extent still pinned */
    SL_RECORD_QUARANTINED = 4, /* reservation over, its writer may still write */
    SL_RECORD_PROMOTING = 5,   /* extent that the tierer (writer) fills; not in the table */
    SL_RECORD_GROUP = 6,       /* a block: in the table under its own key, hidden from objects */
    SL_RECORD_BLOB =
        7, /* the registrar's own durable notes (engines, clients): no key, no extent */
};

struct sl_disk_place {
    uint64_t offset_bytes;
    uint32_t segment;
    uint16_t disk;  /* slot of the disk: the registrar's notes say which one has it */
    uint16_t valid; /* 0: not on disk */
};

/* A snapshot of a record. */
struct sl_entry {
    sl_ref ref;
    uint32_t kind; /* enum sl_record_kind */
    uint64_t version;
    uint64_t hash;
    struct sl_extent
        extent; /* generation 0: no copy in memory; length_bytes is always the value's */
    struct sl_digest digest;
    struct sl_disk_place disk;
    struct sl_proc_id owner;  /* of a reservation: its owner */
    struct sl_proc_id writer; /* the process that may write the bytes */
    uint64_t deadline_ns;     /* of a reservation or a pending group (monotonic) */
    uint64_t op_id;           /* that made the reservation or group */
    sl_ref group;             /* 0: none */
    uint64_t soft_pin_ns; /* evicted only when nothing else is left: so long from its commit on */
    uint64_t soft_pin_end_ns; /* of a COMMITTED one: until then (monotonic); 0: no soft pin */
    uint64_t bundle;          /* hash of the name of its bundle; 0: none */
    uint32_t contribution;    /* 1 + its number; 0: none */
    uint64_t lease_end_ns;    /* of a look-up that leased it (sl_leases.h): until when; 0: not */
    bool hard_pin;            /* never evicted */
    bool replace; /* of a reservation: a value that has its key by then gives way to it */
    bool pinned; /* of a reservation, also when it is over: its writer pins it whenever it writes */
    uint16_t part_index;
    uint16_t key_length;
    const char *key; /* in the mapping: may change under a reader; the writer reads it freely */
};

/* ------------------------------------------------ readers
 * ------------------------------------------------ */
struct sl_index_view; /* opaque; read-only mapping; any number of threads */

sl_err sl_index_view_open(const char *shm_dir, struct sl_index_view **out, struct sl_error *why);
void sl_index_view_close(struct sl_index_view **view);
/* As sl_segment_is_cut. */
bool sl_index_view_is_cut(const struct sl_index_view *view);
/* Whether it still is the index of shm_dir: as sl_segment_current. */
sl_err sl_index_view_current(const struct sl_index_view *view, const char *shm_dir);
/* The quick look: as sl_segment_linked. */
bool sl_index_view_linked(const struct sl_index_view *view);
/* Makes *view (NULL: not open yet) that of the index which shm_dir has now; when it is already,
 * what sl_segment_followed costs. Errors: SL_ERR_NOT_FOUND (none is there: *view stays as it is),
 * those of opening
 * (*view is NULL). */
sl_err sl_index_view_follow(const char *shm_dir, struct sl_index_view **view, struct sl_error *why);
/* The same for an actor. false: there is none; what else went wrong is in its log. */
bool sl_index_view_ready(struct sl_env *env, struct sl_index_view **view);
/* Looks a key up among visible objects (COMMITTED, and its group, if any, committed).
 * SL_OK fills *out; SL_ERR_NOT_FOUND; SL_ERR_BUSY after 64 torn tries: ask the registrar. */
sl_err sl_index_find(const struct sl_index_view *view, const char *key, uint32_t key_length,
                     struct sl_entry *out);
struct sl_key {
    const char *at;
    uint32_t length;
};
/* A batch with prefetching: codes[i] as above; out may be NULL (exists only). */
void sl_index_find_batch(const struct sl_index_view *view, const struct sl_key *keys,
                         uint32_t count, struct sl_entry *out, sl_err *codes);
/* After copying bytes out: acquire fence, then whether the record still is the one found (an
 * object's record; the state of its group is not asked again: its bytes are right as long as the
 * record stands). */
bool sl_index_unchanged(const struct sl_index_view *view, const struct sl_entry *entry);
/* A writer's own claim: kind is RESERVED or PROMOTING, with this extent generation. */
bool sl_index_claim_stands(const struct sl_index_view *view, sl_ref ref, uint64_t generation);
/* State of a block: SL_OK visible, SL_ERR_BUSY being written, SL_ERR_NOT_FOUND. */
sl_err sl_index_find_group(const struct sl_index_view *view, const char *key, uint32_t key_length);
/* A batch of these with prefetching. */
void sl_index_find_group_batch(const struct sl_index_view *view, const struct sl_key *keys,
                               uint32_t count, sl_err *codes);
/* Walks visible objects in no order; cursor starts at 0 and ends at UINT64_MAX. key_out needs
 * SL_KEY_BYTES_MAX + 1 bytes and receives a stable copy, zero-terminated; out->key points at it.
 * An object that stays in the table during the whole walk is given exactly once. False: the end. */
bool sl_index_scan(const struct sl_index_view *view, uint64_t *cursor, struct sl_entry *out,
                   char *key_out);
/* The visible object whose record was once told as ref, with an extent of this generation in
 * memory: what sl_pins_view_drain gives. Both may be any number. A record that was changed since is
 * not found, though its object may still be there. key_out as of a scan. SL_OK fills *out;
 * SL_ERR_NOT_FOUND; SL_ERR_BUSY as sl_index_find. */
sl_err sl_index_find_ref(const struct sl_index_view *view, sl_ref ref, uint64_t generation,
                         struct sl_entry *out, char *key_out);
/* Whether a key that is not here may be had from another node, by a BRING to the transporter. */
bool sl_index_view_remote(const struct sl_index_view *view);
struct sl_index_stats {
    uint64_t bucket_count, key_count, group_count, record_bytes_used, record_bytes_max,
        mapped_bytes;
};
void sl_index_view_stats(const struct sl_index_view *view, struct sl_index_stats *out);

/* ------------------------------------------------- writer
 * ------------------------------------------------- */
struct sl_index; /* opaque; the registrar; one thread */
/* How long leases last (sl_leases.h); both 0: there are none. */
struct sl_lease_times {
    uint64_t object_ns; /* of a look-up that leases what it finds */
    uint64_t block_ns;  /* the longest that a look-up of blocks may hold them */
};
struct sl_index_options {
    const char *shm_dir;
    uint64_t index_bytes_max; /* ceiling of buckets and records together */
    uint64_t
        key_count; /* the bucket table is sized for; 0: from index_bytes_max at 320 bytes a key */
    bool derived;  /* both follow from other settings: an index that exists keeps its size */
    struct sl_arena *arena;       /* source of versions; borrowed */
    struct sl_lease_times leases; /* of an index that is made: its readers lease from the first one
                                     on; then sl_index_leases_open */
    struct sl_goes_on goes_on; /* allocating a large table or leases, and recovery, take seconds */
};
/* Opens a matching index or creates one. An index that belongs to another arena (the arena was made
 * anew) says nothing any more: its readers are sent to the registrar (SL_ERR_BUSY), it is removed,
 * and *created is true. Errors: those of segments; SL_ERR_CONFIG (index_bytes_max too small for
 * key_count; an existing index has another size, and none that is derived), SL_ERR_CORRUPT.
 */
sl_err sl_index_open(const struct sl_index_options *options, bool *created, struct sl_index **out,
                     struct sl_error *why);
/* Whether there can be such an index, and one that is there has its size; asked before a start,
 * without an arena. Errors: SL_ERR_CONFIG, as of sl_index_open. */
sl_err sl_index_fits(const struct sl_index_options *options, struct sl_error *why);
void sl_index_close(struct sl_index **index);
/* As sl_segment_is_short, of the leases, too. */
bool sl_index_is_short(const struct sl_index *index);
/* The counts of changes (sl_index_changes.h) begin anew where another process cut them short, or
 * there are none. True: they did. */
bool sl_index_changes_renew(struct sl_index *index, const char *shm_dir);
/* Says to all readers whether other nodes may be asked. */
void sl_index_set_remote(struct sl_index *index, bool remote);
/* A view on the same mapping, for the registrar's own look-ups. Borrowed. */
const struct sl_index_view *sl_index_as_view(const struct sl_index *index);

/* After open of an existing index, before anything else: frees half-written records, relinks
 * committed records that are in no slot unless their key is, drops duplicates, recounts overflow
 * counts; then calls each() for every live record of any kind, claims last. Readers are served all
 * the while. In detail:
 * - an extent generation is claimed by one record afterwards: a claim outside the table whose
 * generation a COMMITTED record holds is freed; a COMMITTED record that lost its slot to a fresh
 * one becomes RETIRED when it holds an extent of its own (a reader may have pinned it), else it is
 * freed;
 * - a PENDING group's filled bits are those of its committed parts, and the group is committed when
 * all are there;
 * - parts of a group that is gone leave the table: COMMITTED becomes RETIRED (or is freed when it
 * has no extent), RESERVED becomes QUARANTINED. Parts of a DROPPED group are given as they are: the
 * caller unlinks them;
 * - links are 0 in every record.
 * each() may be NULL, may change or free the record it is given, and the links of those before it
 * and of its block. goes_on of the options is called all the while. Errors: SL_ERR_NO_MEMORY (not
 * all records were given; readers find what they found before). */
sl_err sl_index_recover(struct sl_index *index,
                        void (*each)(void *context, const struct sl_entry *entry), void *context);

/* Walks live records of every kind, in no order that means anything; cursor starts at 0. A record
 * that is there during the whole walk is given once; one that is made, freed or moved meanwhile may
 * be given or not. Where a slab ends SL_RECORD_FREE is given: each step is short. False: the end.
 */
bool sl_index_walk(const struct sl_index *index, uint64_t *cursor, struct sl_entry *out);
/* Reads a record without checks of version (the writer's own view). */
void sl_index_read(const struct sl_index *index, sl_ref ref, struct sl_entry *out);
/* Of that, what most who ask want to know. */
enum sl_record_kind sl_index_kind(const struct sl_index *index, sl_ref ref);
uint64_t sl_index_version(const struct sl_index *index, sl_ref ref);
void sl_index_extent(const struct sl_index *index, sl_ref ref, struct sl_extent *out);
/* What keeps a value longer than the order of eviction says; all 0: nothing, as of a block. */
struct sl_stay {
    uint64_t soft_pin_end_ns, bundle; /* as of struct sl_entry */
    bool hard_pin;
};
void sl_index_stay(const struct sl_index *index, sl_ref ref, struct sl_stay *out);
/* A record is read soon: its lines are fetched from memory. */
void sl_index_fetch(const struct sl_index *index, sl_ref ref);
void sl_index_fetch_links(const struct sl_index *index, sl_ref ref); /* its links alone */
/* A record that was fetched comes into the table or leaves it soon: so is its place there. */
void sl_index_fetch_place(const struct sl_index *index, sl_ref ref);
/* A key is looked up soon: so is its place. Gives its hash in this table. */
uint64_t sl_index_fetch_key(const struct sl_index *index, struct sl_key key);
/* The key of any record, which the writer reads freely. */
struct sl_key sl_index_key(const struct sl_index *index, sl_ref ref);
/* Whether ref, which may be any number from outside, names a record that is not free. Reading it
 * tells its kind. */
bool sl_index_ref_live(const struct sl_index *index, sl_ref ref);
/* Any COMMITTED record or GROUP under this key, visible or not. SL_ERR_NOT_FOUND. The extent and
 * digest of a GROUP's entry are zero. */
sl_err sl_index_find_any(const struct sl_index *index, const char *key, uint32_t key_length,
                         struct sl_entry *out);
/* The same of a key whose hash in this table is known: from sl_index_fetch_key, or its record. */
sl_err sl_index_find_hashed(const struct sl_index *index, struct sl_key key, uint64_t hash,
                            struct sl_entry *out);

/* Writes a RESERVED or PROMOTING record with its key (not in the table), complete before it counts;
 * RETIRED and QUARANTINED are taken too. Uses want: kind, extent, owner, writer, deadline_ns,
 * op_id, group, part_index, digest, disk, hard_pin, replace, pinned, soft_pin_ns, bundle,
 * contribution, key, key_length, hash (as of sl_index_find_hashed; 0: it is computed here). The
 * group, if any, must be live. Errors: SL_ERR_NO_SPACE (index full), SL_ERR_INVALID (kind, key
 * length, arena over 65535, part index).
 *
 * New keys (here, by insert and by group_create) are refused a little before the very end. So a
 * full index still has the records to switch all that is in it, and a slot for every reservation.
 */
sl_err sl_index_claim(struct sl_index *index, const struct sl_entry *want, sl_ref *ref,
                      struct sl_error *why);
/* RESERVED -> COMMITTED with its digest, and into the table. The key must not be there (the caller
 * looked). Errors: SL_ERR_NO_SPACE (no slot within SL_INDEX_PROBE_MAX buckets, which nine of ten
 * slots in use do not bring about; the record stays RESERVED). */
sl_err sl_index_commit(struct sl_index *index, sl_ref ref, struct sl_digest digest);
/* The same in place of the COMMITTED record `old` of the same key, an object without a block: by
 * one store, so readers find the one or the other. *retired: old stays outside the table as RETIRED
 * with its extent, until sl_index_set_kind(index, old, SL_RECORD_FREE) after a scan of the pins;
 * else it is freed. The caller takes old out of its lists before. */
void sl_index_commit_over(struct sl_index *index, sl_ref ref, struct sl_digest digest, sl_ref old,
                          bool *retired);
/* From now on each record that is made or switched has a place for its contribution; with
 * false (as it begins) only those that are given one. */
void sl_index_set_contributed(struct sl_index *index, bool contributed);
/* Changes that of any object's record in place; false: it has no place for it. */
bool sl_index_set_contribution(struct sl_index *index, sl_ref ref, uint32_t contribution);
/* Inserts a COMMITTED record directly (recovery from disk): extent may be none. soft_pin_end_ns is
 * taken as it is when it is not 0. */
sl_err sl_index_insert(struct sl_index *index, const struct sl_entry *want, sl_ref *ref,
                       struct sl_error *why);
/* Replaces a COMMITTED record by a fresh one with another extent and/or disk place; everything else
 * is kept, links too. *fresh is the new reference. The old version is 0 afterwards, its memory
 * free. extent and disk: NULL keeps what is there; a generation of 0 means no copy in memory any
 * more. The value's length never changes. References to the old record in other records' links are
 * changed to *fresh here: `newer` of the older one, `older` of the newer one, and next_part of the
 * part before it in the ring (or list) of its group, the group's own first part included. What the
 * caller holds outside of records (head and tail of the LRU, tables by ref) is the caller's to
 * change. Errors: SL_ERR_NO_SPACE (nothing changed).
 *
 * The old extent is in no record afterwards. When a reader may have pinned it, use switch_retire
 * instead: pins name generations only, so a restart between the switch and the scan of the pins
 * would find its space unclaimed. */
sl_err sl_index_switch(struct sl_index *index, sl_ref ref, const struct sl_extent *extent,
                       const struct sl_disk_place *disk, sl_ref *fresh);
/* The same, but the old record stays outside the table as RETIRED with its extent and a new version
 * (so that readers see the change), until sl_index_set_kind(index, ref, SL_RECORD_FREE) after a
 * scan of the pins. Its links are 0 and free for use. When it has no extent, or the fresh record
 * has the same one, this is sl_index_switch; *retired tells. */
sl_err sl_index_switch_retire(struct sl_index *index, sl_ref ref, const struct sl_extent *extent,
                              const struct sl_disk_place *disk, sl_ref *fresh, bool *retired);
/* Takes a COMMITTED record or GROUP out of the table; it stays as `kind` (RETIRED, or FREE at
 * once). Either way its version changes first, so readers and pins taken too late see it. Parts
 * before their group. Links of a RETIRED record stay as they were. */
void sl_index_unlink(struct sl_index *index, sl_ref ref, enum sl_record_kind kind);
/* Changes a claim outside the table: RESERVED -> QUARANTINED, anything -> FREE (memory reusable).
 * BLOBs too. */
void sl_index_set_kind(struct sl_index *index, sl_ref ref, enum sl_record_kind kind);
void sl_index_set_deadline(struct sl_index *index, sl_ref ref, uint64_t deadline_ns);

/* Blocks. Makes a PENDING group in the table. Errors: SL_ERR_EXISTS (an object or group has the
 * key), SL_ERR_NO_SPACE, SL_ERR_INVALID (key length, part count). */
struct sl_group_want {
    struct sl_key key;
    uint64_t hash;       /* as of sl_index_find_hashed; 0: it is computed here */
    uint32_t part_count; /* 1..512 */
    uint64_t deadline_ns, op_id, transient_ns;
    struct sl_proc_id owner;
};
sl_err sl_index_group_create(struct sl_index *index, const struct sl_group_want *want, sl_ref *ref,
                             struct sl_error *why);
/* The registrar's own words in a block, which survive its restart: what eviction knows of it. All 0
 * in a block that is made. Readers ignore them. */
struct sl_unit_note {
    uint64_t parent_hash; /* of the block before it in its chain */
    uint32_t at;
    uint32_t keep_s; /* for how long it is kept; of one that was in memory: until when */
    uint8_t class_index, use_count, stored_count, cut;
    uint8_t hint, priority;
    uint16_t state; /* 0: nothing is noted */
};
struct sl_unit_note *sl_index_unit_note(struct sl_index *index, sl_ref unit); /* NULL: an object */
/* One word more, of a block or a COMMITTED object (where its deadline stood). It goes with a
 * switch, and may be anything before it is set, and after a restart. */
uint32_t sl_index_unit_number(const struct sl_index *index, sl_ref unit);
void sl_index_set_unit_number(struct sl_index *index, sl_ref unit, uint32_t number);
/* Sets the bit of a part; when all are set, flips the state word to committed by one release store.
 * Gives true when this call did so. The part's record is committed before. Stamps committed_ns with
 * the time given by sl_index_set_now, the monotonic clock when that was never called. */
bool sl_index_group_fill(struct sl_index *index, sl_ref group, uint32_t part_index);
void sl_index_set_now(struct sl_index *index, uint64_t now_ns);
enum sl_group_state { SL_GROUP_PENDING = 1, SL_GROUP_COMMITTED = 2, SL_GROUP_DROPPED = 3 };
struct sl_group_info {
    enum sl_group_state state;
    uint32_t part_count;
    uint64_t deadline_ns, op_id, transient_ns, committed_ns;
    struct sl_proc_id owner;
};
void sl_index_group_info(const struct sl_index *index, sl_ref group, struct sl_group_info *out);
/* Makes all parts invisible at once; the caller then unlinks parts and group. */
void sl_index_group_drop(struct sl_index *index, sl_ref group);

/* Durable notes of the registrar: survive its restart, are given by recover (kind BLOB, bytes as
 * key). */
sl_err sl_index_blob_put(struct sl_index *index, const void *bytes, uint32_t length_bytes,
                         uint32_t tag, sl_ref *ref, struct sl_error *why); /* <= 60 KiB */
const void *sl_index_blob_at(const struct sl_index *index, sl_ref ref, uint32_t *length_bytes,
                             uint32_t *tag);

/* The registrar's own words in a record: readers ignore them, restart leaves them undefined. */
struct sl_links {
    sl_ref older, newer; /* LRU of units (groups, and objects without one) */
    sl_ref next_part; /* the next part of the same group, 0 behind the last; in the group: its first
                         part */
    uint16_t flags;   /* REG_FLAG_... (actors/registrar/records/units.h) */
    uint16_t disks;   /* a set of disks */
};
struct sl_links *sl_index_links(struct sl_index *index, sl_ref ref);

/* SL_ERR_NO_SPACE above means: evict, then try again. True from 90 % of the records or a table load
 * of 0.85 on. */
bool sl_index_nearly_full(const struct sl_index *index);

#endif
