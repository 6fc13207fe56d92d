/* ipc/shm/sl_index.h - the shared-memory hash table from a key to the location of its value, and
 * every claim on an extent. Only the registrar writes it; all other processes map it read-only.
 *
 * Layout: a header page; a table of 64-byte buckets (one word of overflow count, seven slots:
 * 32-bit tag and 32-bit record reference); a region of records in size classes of 64 bytes (slabs
 * of 64 KiB, populated on first use: sparse until then). A probe starts at the bucket of the hash
 * and moves on to the next one while the bucket's overflow count is not zero, at most
 * SL_INDEX_PROBE_MAX buckets.
 *
 * Records are type-stable: freed memory stays a record. A slab whose records are all free may take
 * another class; readers notice it because they also check the slot again. Each record begins with
 * a `version` (never reused, from the arena's generation counter; 0: being written or free).
 * Readers check it again after reading: changed means retry. A committed record is never edited in
 * place: a change writes a fresh record and switches the slot by one 8-byte release store; then the
 * old version becomes 0. So a registrar that is killed at any point stops no reader.
 *
 * A record's `kind` is the claim on its extent: RESERVED, COMMITTED, RETIRED, QUARANTINED,
 * PROMOTING. It is written before the extent is used. With owner and writer it shows, after any
 * crash, which process may still access the bytes. Blocks: a GROUP record under the key MODEL/BLOCK
 * holds the state word to which all parts refer. */
#ifndef SL_INDEX_H
#define SL_INDEX_H

#include "ipc/shm/sl_arena.h"
#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_env.h"

#define SL_INDEX_PROBE_MAX 256u /* longest probe, in buckets */
#define SL_GROUP_PARTS_MAX 512u
#define SL_BLOB_BYTES_MAX  61440u

typedef uint32_t sl_ref; /* number of a 64-byte unit of the record region; 0: none */

enum sl_record_kind {
    SL_RECORD_FREE = 0,
    SL_RECORD_RESERVED = 1,    /* granted to writer; not in the table */
    SL_RECORD_COMMITTED = 2,   /* in the table (visible when its group is, if it has one) */
    SL_RECORD_RETIRED = 3,     /* removed from the table, its extent still pinned */
    SL_RECORD_QUARANTINED = 4, /* reservation ended, its writer may still write */
    SL_RECORD_PROMOTING = 5,   /* extent that a tierer (writer) fills; not in the table */
    SL_RECORD_GROUP = 6,       /* a block: in the table under its own key, hidden from objects */
    SL_RECORD_BLOB = 7, /* durable note of the registrar (engines, clients): no key, no extent */
};

struct sl_disk_place {
    uint64_t offset_bytes;
    uint32_t segment;
    uint16_t disk;  /* slot of the disk: a note of the registrar maps it to a disk */
    uint16_t valid; /* 0: not on disk */
};

/* A snapshot of a record. */
struct sl_entry {
    sl_ref ref;
    uint32_t kind; /* enum sl_record_kind */
    uint64_t version;
    uint64_t hash;
    struct sl_extent
        extent; /* generation 0: no copy in memory; length_bytes is always that of the value */
    struct sl_digest digest;
    struct sl_disk_place disk;
    struct sl_proc_id owner;  /* of a reservation: its owner */
    struct sl_proc_id writer; /* the process that may write the bytes */
    uint64_t deadline_ns;     /* of a reservation or a pending group (monotonic) */
    uint64_t op_id;           /* that created the reservation or group */
    sl_ref group;             /* 0: none */
    uint64_t soft_pin_ns; /* duration from the commit in which it is evicted only if nothing else is
                             left */
    uint64_t soft_pin_end_ns; /* of a COMMITTED one: end of the soft pin (monotonic); 0: none */
    uint64_t bundle;          /* hash of the name of its bundle; 0: none */
    uint32_t contribution;    /* 1 + number of the contribution; 0: none */
    uint64_t lease_end_ns; /* set by lookups that lease (sl_leases.h): end of the lease; 0: none */
    bool hard_pin;         /* never evicted */
    bool replace;          /* of a reservation: replaces a value that has its key by then */
    bool pinned; /* of a reservation, even after its end: its writer pins it whenever it writes */
    uint16_t part_index;
    uint16_t key_length;
    const char *key; /* in the mapping: may change under a reader; stable for the writer */
};

/* ---- readers ---- */
struct sl_index_view; /* opaque; read-only mapping; any number of threads */

sl_err sl_index_view_open(const char *shm_dir, struct sl_index_view **out, struct sl_error *why);
void sl_index_view_close(struct sl_index_view **view);
/* As sl_shm_file_is_cut. */
bool sl_index_view_is_cut(const struct sl_index_view *view);
/* Whether it still is the index of shm_dir; see sl_shm_file_current. */
sl_err sl_index_view_current(const struct sl_index_view *view, const char *shm_dir);
/* A faster check; see sl_shm_file_linked. */
bool sl_index_view_linked(const struct sl_index_view *view);
/* Makes *view (NULL: not open yet) a view of the current index of shm_dir. If it already is, this
 * costs as much as sl_shm_file_followed. Errors: SL_ERR_NOT_FOUND (no index: *view is unchanged),
 * those of opening (*view is NULL). */
sl_err sl_index_view_follow(const char *shm_dir, struct sl_index_view **view, struct sl_error *why);
/* The same for an actor. False: there is no index; other failures are logged. */
bool sl_index_view_ready(struct sl_env *env, struct sl_index_view **view);
/* Looks a key up among visible objects (COMMITTED, and its group, if any, is committed). SL_OK
 * fills *out; SL_ERR_NOT_FOUND; SL_ERR_BUSY after 64 torn reads: ask the registrar. */
sl_err sl_index_find(const struct sl_index_view *view, const char *key, uint32_t key_length,
                     struct sl_entry *out);
struct sl_key {
    const char *at;
    uint32_t length;
};
/* Looks up a batch with prefetching. codes[i] as above; out may be NULL (exists only). */
void sl_index_find_batch(const struct sl_index_view *view, const struct sl_key *keys,
                         uint32_t count, struct sl_entry *out, sl_err *codes);
/* Call this after copying bytes out: acquire fence, then whether the record still is the one found.
 * It does not check the state of its group: the bytes are valid as long as the record exists. */
bool sl_index_unchanged(const struct sl_index_view *view, const struct sl_entry *entry);
/* For a writer's own claim: whether it is RESERVED or PROMOTING with this extent generation. */
bool sl_index_claim_exists(const struct sl_index_view *view, sl_ref ref, uint64_t generation);
/* State of a block: SL_OK visible, SL_ERR_BUSY being written, SL_ERR_NOT_FOUND. */
sl_err sl_index_find_group(const struct sl_index_view *view, const char *key, uint32_t key_length);
/* The same for a batch, with prefetching. */
void sl_index_find_group_batch(const struct sl_index_view *view, const struct sl_key *keys,
                               uint32_t count, sl_err *codes);
/* Iterates over visible objects in no order; cursor starts at 0 and ends at UINT64_MAX. key_out
 * needs SL_KEY_BYTES_MAX + 1 bytes and receives a stable, zero-terminated copy; out->key points to
 * it. An object that stays in the table during the whole scan is given exactly once. False: the
 * end. */
bool sl_index_scan(const struct sl_index_view *view, uint64_t *cursor, struct sl_entry *out,
                   char *key_out);
/* Finds the visible object with this record and an extent of this generation in memory, as given by
 * sl_pins_view_drain. Both may be any number. A record that has changed is not found, even if its
 * object still exists. key_out as in a scan. SL_OK fills *out; SL_ERR_NOT_FOUND; SL_ERR_BUSY as
 * sl_index_find. */
sl_err sl_index_find_ref(const struct sl_index_view *view, sl_ref ref, uint64_t generation,
                         struct sl_entry *out, char *key_out);
/* Whether other nodes may have keys that are missing here (ask the transporter with BRING). */
bool sl_index_view_remote(const struct sl_index_view *view);
struct sl_index_stats {
    uint64_t bucket_count, key_count, group_count, record_bytes_used, record_bytes_max,
        mapped_bytes;
};
void sl_index_view_stats(const struct sl_index_view *view, struct sl_index_stats *out);

/* ---- writer ---- */
struct sl_index; /* opaque; the registrar; one thread */
/* Durations of leases (sl_leases.h); both 0: no leases. */
struct sl_lease_times {
    uint64_t object_ns; /* of a lookup that leases what it finds */
    uint64_t block_ns;  /* longest hold by a lookup of blocks */
};
struct sl_index_options {
    const char *shm_dir;
    uint64_t index_bytes_max; /* ceiling of buckets and records together */
    uint64_t key_count; /* keys for which the bucket table is sized; 0: index_bytes_max at 320 bytes
                           a key */
    bool derived;       /* both are derived from other settings: an existing index keeps its size */
    struct sl_arena *arena;       /* source of versions; borrowed */
    struct sl_lease_times leases; /* for a new index: its first readers already lease; then call
                                     sl_index_leases_open */
    struct sl_progress_callback goes_on; /* reports progress: allocating a large table or leases,
                                  and recovery, take seconds */
};
/* Opens a matching index or creates one. An index of another arena (the arena was created again) is
 * invalid: its readers are sent to the registrar (SL_ERR_BUSY), it is removed, and *created is
 * true. Errors: those of sl_shm_file_open and _create; SL_ERR_CONFIG (index_bytes_max too small for
 * key_count; an existing index has another size, and the size is not derived), SL_ERR_CORRUPT. */
sl_err sl_index_open(const struct sl_index_options *options, bool *created, struct sl_index **out,
                     struct sl_error *why);
/* Whether such an index is possible, and an existing one has its size; checked before a start,
 * without an arena. Errors: SL_ERR_CONFIG, as sl_index_open. */
sl_err sl_index_fits(const struct sl_index_options *options, struct sl_error *why);
void sl_index_close(struct sl_index **index);
/* As sl_shm_file_is_short, also of the leases. */
bool sl_index_is_short(const struct sl_index *index);
/* Restarts the counts of changes (sl_index_changes.h) if another process truncated them or there
 * are none. True: it did. */
bool sl_index_changes_renew(struct sl_index *index, const char *shm_dir);
/* Sets whether readers may ask other nodes. */
void sl_index_set_remote(struct sl_index *index, bool remote);
/* A view on the same mapping, for the registrar's own lookups. Borrowed. */
const struct sl_index_view *sl_index_as_view(const struct sl_index *index);

/* Call this after opening an existing index, before anything else. It frees half-written records,
 * relinks committed records that are in no slot unless their key is, drops duplicates and recounts
 * overflow counts. Then it calls each() for every live record of any kind, claims last. Readers are
 * served all the while. In detail:
 * - Each extent generation is then claimed by one record: a claim outside the table whose
 * generation a COMMITTED record holds is freed. A COMMITTED record that lost its slot to a fresh
 * one becomes RETIRED if it has an extent of its own (a reader may have pinned it), otherwise it is
 * freed.
 * - A PENDING group's filled bits are those of its committed parts, and the group is committed when
 * it has all.
 * - Parts of a group that no longer exists leave the table: COMMITTED becomes RETIRED (or is freed
 * if it has no extent), RESERVED becomes QUARANTINED. Parts of a DROPPED group are given unchanged:
 * the caller unlinks them.
 * - Links are 0 in every record. each() may be NULL, may change or free the record it is given, and
 * the links of earlier records and of its block. goes_on of the options is called all the while.
 * Errors: SL_ERR_NO_MEMORY (not all records were given; readers find what they found before). */
sl_err sl_index_recover(struct sl_index *index,
                        void (*each)(void *context, const struct sl_entry *entry), void *context);

/* Iterates over live records of every kind, in no meaningful order; cursor starts at 0. A record
 * that exists during the whole walk is given once; one that is created, freed or moved meanwhile
 * may be given or not. At the end of a slab SL_RECORD_FREE is given, so that each step is short.
 * False: the end. */
bool sl_index_walk(const struct sl_index *index, uint64_t *cursor, struct sl_entry *out);
/* Reads a record without version checks (the writer's own view). */
void sl_index_read(const struct sl_index *index, sl_ref ref, struct sl_entry *out);
/* Single fields of it, for callers that need no more. */
enum sl_record_kind sl_index_kind(const struct sl_index *index, sl_ref ref);
uint64_t sl_index_version(const struct sl_index *index, sl_ref ref);
void sl_index_extent(const struct sl_index *index, sl_ref ref, struct sl_extent *out);
/* Properties that keep a value beyond the order of eviction; all 0: none, as for a block. */
struct sl_stay {
    uint64_t soft_pin_end_ns, bundle; /* as of struct sl_entry */
    bool hard_pin;
};
void sl_index_stay(const struct sl_index *index, sl_ref ref, struct sl_stay *out);
/* Prefetches a record that is read soon. */
void sl_index_fetch(const struct sl_index *index, sl_ref ref);
void sl_index_fetch_links(const struct sl_index *index, sl_ref ref); /* only its links */
/* Prefetches the table position of a prefetched record that is soon inserted or removed. */
void sl_index_fetch_place(const struct sl_index *index, sl_ref ref);
/* Prefetches the table position of a key that is soon looked up. Returns its hash in this table. */
uint64_t sl_index_fetch_key(const struct sl_index *index, struct sl_key key);
/* The key of any record, which is stable for the writer. */
struct sl_key sl_index_key(const struct sl_index *index, sl_ref ref);
/* Whether ref, which may be any number from outside, names a record that is not free. Read the
 * record for its kind. */
bool sl_index_ref_live(const struct sl_index *index, sl_ref ref);
/* Finds any COMMITTED record or GROUP under this key, visible or not. SL_ERR_NOT_FOUND. The extent
 * and digest of a GROUP's entry are zero. */
sl_err sl_index_find_any(const struct sl_index *index, const char *key, uint32_t key_length,
                         struct sl_entry *out);
/* The same for a key with a known hash in this table: from sl_index_fetch_key, or its record. */
sl_err sl_index_find_hashed(const struct sl_index *index, struct sl_key key, uint64_t hash,
                            struct sl_entry *out);

/* Writes a RESERVED or PROMOTING record with its key (not in the table), complete before it counts;
 * RETIRED and QUARANTINED are also accepted. Uses of `want`: kind, extent, owner, writer,
 * deadline_ns, op_id, group, part_index, digest, disk, hard_pin, replace, pinned, soft_pin_ns,
 * bundle, contribution, key, key_length, hash (as in sl_index_find_hashed; 0: computed here). The
 * group, if any, must be live. Errors: SL_ERR_NO_SPACE (index full), SL_ERR_INVALID (kind, key
 * length, arena over 65535, part index).
 *
 * New keys (here, in insert and in group_create) are refused shortly before the index is full. So a
 * full index still has records to switch all its entries, and a slot for every reservation. */
sl_err sl_index_claim(struct sl_index *index, const struct sl_entry *want, sl_ref *ref,
                      struct sl_error *why);
/* RESERVED -> COMMITTED with its digest, and inserts it into the table. The key must not be there
 * (the caller has checked). Errors: SL_ERR_NO_SPACE (no slot within SL_INDEX_PROBE_MAX buckets,
 * which does not occur up to nine of ten slots in use; the record stays RESERVED). */
sl_err sl_index_commit(struct sl_index *index, sl_ref ref, struct sl_digest digest);
/* Commits in place of the COMMITTED record `old` of the same key, an object without a block. It is
 * one store, so readers find the one or the other. *retired: old stays outside the table as RETIRED
 * with its extent, until sl_index_set_kind(index, old, SL_RECORD_FREE) after a scan of the pins;
 * otherwise it is freed. The caller removes old from its lists before. */
void sl_index_commit_over(struct sl_index *index, sl_ref ref, struct sl_digest digest, sl_ref old,
                          bool *retired);
/* With true, each record that is created or switched from now on has room for its contribution;
 * with false (initially) only those that have one. */
void sl_index_set_contributed(struct sl_index *index, bool contributed);
/* Changes the contribution of any object's record in place. False: the record has no room for
 * it. */
bool sl_index_set_contribution(struct sl_index *index, sl_ref ref, uint32_t contribution);
/* Inserts a COMMITTED record directly (recovery from disk); its extent may be none. soft_pin_end_ns
 * is used as it is if it is not 0. */
sl_err sl_index_insert(struct sl_index *index, const struct sl_entry *want, sl_ref *ref,
                       struct sl_error *why);
/* Replaces a COMMITTED record by a fresh one with another extent and/or place on disk; everything
 * else is kept, including links. *fresh is the new reference. The old version is then 0, its memory
 * free. extent and disk: NULL keeps the old one; a generation of 0 means no copy in memory. The
 * value's length never changes. References to the old record in other records' links are changed to
 * *fresh here: `newer` of the older one, `older` of the newer one, and next_part of the part before
 * it in the ring (or list) of its group, or the group's first part. The caller changes references
 * that it keeps outside of records (head and tail of the LRU, tables by ref). Errors:
 * SL_ERR_NO_SPACE (nothing changed).
 *
 * No record names the old extent afterwards. If a reader may have pinned it, use switch_retire
 * instead: pins name only generations, so a restart between the switch and the scan of pins would
 * take its space as free. */
sl_err sl_index_switch(struct sl_index *index, sl_ref ref, const struct sl_extent *extent,
                       const struct sl_disk_place *disk, sl_ref *fresh);
/* The same, but the old record stays outside the table as RETIRED with its extent and a new version
 * (so that readers see the change), until sl_index_set_kind(index, ref, SL_RECORD_FREE) after a
 * scan of the pins. Its links are 0 and free for use. If it has no extent, or the fresh record has
 * the same one, this is sl_index_switch. *retired receives which. */
sl_err sl_index_switch_retire(struct sl_index *index, sl_ref ref, const struct sl_extent *extent,
                              const struct sl_disk_place *disk, sl_ref *fresh, bool *retired);
/* Removes a COMMITTED record or GROUP from the table; it stays as `kind` (RETIRED, or FREE at
 * once). Its version changes first, so readers and late pins see it. Remove parts before their
 * group. Links of a RETIRED record are kept. */
void sl_index_unlink(struct sl_index *index, sl_ref ref, enum sl_record_kind kind);
/* Changes a claim outside the table: RESERVED -> QUARANTINED, anything -> FREE (memory reusable).
 * Also for BLOBs. */
void sl_index_set_kind(struct sl_index *index, sl_ref ref, enum sl_record_kind kind);
void sl_index_set_deadline(struct sl_index *index, sl_ref ref, uint64_t deadline_ns);

/* Blocks. Creates a PENDING group in the table. Errors: SL_ERR_EXISTS (an object or group has the
 * key), SL_ERR_NO_SPACE, SL_ERR_INVALID (key length, part count). */
struct sl_group_want {
    struct sl_key key;
    uint64_t hash;       /* as in sl_index_find_hashed; 0: computed here */
    uint32_t part_count; /* 1..512 */
    uint64_t deadline_ns, op_id, transient_ns;
    struct sl_proc_id owner;
};
sl_err sl_index_group_create(struct sl_index *index, const struct sl_group_want *want, sl_ref *ref,
                             struct sl_error *why);
/* Words of a block for the registrar's eviction, which survive its restart. All 0 in a new block.
 * Readers ignore them. */
struct sl_unit_note {
    uint64_t parent_hash; /* of the block before it in its chain */
    uint32_t at;
    uint32_t keep_s; /* how long it is kept; for a block that was in memory: until when */
    uint8_t class_index, use_count, stored_count, cut;
    uint8_t hint, priority;
    uint16_t state; /* 0: nothing is recorded */
};
struct sl_unit_note *sl_index_unit_note(struct sl_index *index, sl_ref unit); /* NULL: an object */
/* One more word, of a block or a COMMITTED object (in place of its deadline). A switch keeps it. It
 * is undefined before it is set and after a restart. */
uint32_t sl_index_unit_number(const struct sl_index *index, sl_ref unit);
void sl_index_set_unit_number(struct sl_index *index, sl_ref unit, uint32_t number);
/* Sets the bit of a part. When all bits are set, changes the state word to committed by one release
 * store, and returns true. The part's record is committed before. Sets committed_ns to the time
 * given by sl_index_set_now, or to the monotonic clock if that was never called. */
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

/* Durable notes of the registrar. They survive its restart, and recover gives them (kind BLOB,
 * bytes as key). */
sl_err sl_index_blob_put(struct sl_index *index, const void *bytes, uint32_t length_bytes,
                         uint32_t tag, sl_ref *ref, struct sl_error *why); /* <= 60 KiB */
const void *sl_index_blob_at(const struct sl_index *index, sl_ref ref, uint32_t *length_bytes,
                             uint32_t *tag);

/* Words of a record for the registrar only: readers ignore them, and they are undefined after a
 * restart. */
struct sl_links {
    sl_ref older, newer; /* LRU of units (groups, and objects without one) */
    sl_ref next_part; /* the next part of the same group, 0 after the last; in the group: its first
                         part */
    uint16_t flags;   /* REG_FLAG_... (actors/registrar/records/units.h) */
    uint16_t disks;   /* a set of disks */
};
struct sl_links *sl_index_links(struct sl_index *index, sl_ref ref);

/* After SL_ERR_NO_SPACE above, evict and try again. True from 90 % of the records or a table load
 * of 0.85 on. */
bool sl_index_nearly_full(const struct sl_index *index);

#endif
