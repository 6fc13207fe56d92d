/* pins.pml - a reader of the index and the registrar that reuses records and extents under it.
 *
 * One key. The registrar (ipc/shm/index_writer.c, actors/registrar/memory/evict.c) puts its value somewhere else
 * again and again: it fills a free extent, writes a free record, switches the slot, retires the old
 * record under a new version, fences, reads the pins, and reuses what is not pinned; or it keeps the
 * extent and changes only the record (a place on disk). With two records and two extents everything is
 * reused at once (ABA). The reader finds the key (ipc/shm/index_reader.c) and either copies the bytes and
 * looks at the version again (sl_index_unchanged), or pins the extent's generation (ipc/shm/sl_pins.c).
 * The bytes of an extent are one word: the generation that they were written for.
 *
 * Safe means: an entry that was accepted is one that was written; a copy that was accepted and every
 * look at pinned bytes see the bytes of that entry; the key, which always exists, is never missed (a
 * torn look is no miss: it is repeated).
 *
 * Without one of its fences the model must fail; tests/models/models_test.py checks each:
 *   NO_FENCE_PIN      sl_pins_take: seq_cst between the slot and the second look at the version
 *   NO_FENCE_SCAN     reg_retired_scan: seq_cst between the unlink and the pins
 *   NO_FENCE_FIND     record_look: acquire between the words and the second look at the version
 *   NO_ACQUIRE_FIND   record_look: acquire of the first look at the version
 *   NO_ACQUIRE_SLOT   record_look: acquire of the second look at the slot, before that at the version
 *   NO_FENCE_COPY     sl_index_unchanged: acquire between the bytes and the version
 *   NO_FENCE_RECORD   record_write: release between version 0 and the new words
 *   NO_FENCE_SLAB     slab_open: release between version 0 and the zeros of a slab of another class
 *   NO_RELEASE_RECORD record_write: release of the new version
 *   NO_RELEASE_KIND   record_set_kind: release of the kind of a record that has left its slot
 *   NO_RELEASE_GIVE   sl_pins_release: release between the last look at the bytes and the empty slot
 *   NO_RECHECK, NO_SCAN, REUSE_VERSION: steps left out, as a cross-check */
#define RECORDS 2
#define SLOT        0 /* of the key: record + 1 */
#define VERSION     1 /* of each record */
#define GENERATION  3
#define OFFSET      5
#define WHAT        7 /* COMMITTED, RETIRED or free */
#define BYTES       9 /* of each extent */
#define PIN        11 /* the reader's slot */
#define SLOTS_USED 12
#define WORDS      13
#define COMMITTED   1
#define RETIRED     2
#define BUFFER      6
#define THREADS     2
#define REGISTRAR   0
#define READER      1
#include "memory.pml"

#ifndef CHANGES
#define CHANGES 3
#endif
#ifndef LOOKS
#define LOOKS 2
#endif
#define VERSIONS (2 * CHANGES + 2)

/* What was written under each version: ghost variables. */
byte wrote_generation[VERSIONS + 1];
byte wrote_offset[VERSIONS + 1];

init
{
    d_step {
        memory[SLOT] = 1;
        memory[VERSION] = 1;
        memory[GENERATION] = 1;
        memory[WHAT] = COMMITTED;
        memory[BYTES] = 1;
        wrote_generation[1] = 1
    }
    atomic { run registrar(); run reader() }
}

proctype registrar()
{
    byte scan_at, used, pinned;
    byte record, extent;     /* where the key is now */
    byte generation = 1, version = 1, changes, versions = 1;
    bit moves;
    do
    :: changes < CHANGES ->
        changes++;
        if
        :: moves = 1
        :: moves = 0
        fi;
        if
        :: moves ->
            extent = 1 - extent;
            generation++;
            /* Its writer was granted the extent by a message: after the scan that freed it. */
            store(REGISTRAR, BYTES + extent, generation)
        :: else -> skip
        fi;
#ifdef REUSE_VERSION
        version = 3 - version;
#else
        versions++;
        version = versions;
#endif
        wrote_generation[version] = generation;
        wrote_offset[version] = extent;
        record = 1 - record;
        if
        :: skip
        :: /* its slab was released and reused: slab_open */
#ifndef NO_FENCE_SLAB
            fence_release(REGISTRAR);
#endif
            store(REGISTRAR, GENERATION + record, 0);
            store(REGISTRAR, OFFSET + record, 0);
            store(REGISTRAR, WHAT + record, 0)
        fi;
        /* record_write */
#ifndef NO_FENCE_RECORD
        fence_release(REGISTRAR);
#endif
        store(REGISTRAR, GENERATION + record, generation);
        store(REGISTRAR, OFFSET + record, extent);
        store(REGISTRAR, WHAT + record, COMMITTED);
#ifdef NO_RELEASE_RECORD
        store(REGISTRAR, VERSION + record, version);
#else
        store_release(REGISTRAR, VERSION + record, version);
#endif
        /* record_switch */
        store_release(REGISTRAR, SLOT, record + 1);
        if
        :: moves ->
            /* record_retire: the kind, then a version that no reader was given yet */
#ifdef NO_RELEASE_KIND
            store(REGISTRAR, WHAT + 1 - record, RETIRED);
#else
            store_release(REGISTRAR, WHAT + 1 - record, RETIRED);
#endif
#ifdef REUSE_VERSION
            store_release(REGISTRAR, VERSION + 1 - record, VERSIONS);
#else
            versions++;
            store_release(REGISTRAR, VERSION + 1 - record, versions);
#endif
#ifndef NO_SCAN
scan:
#ifndef NO_FENCE_SCAN
            fence_seq_cst(REGISTRAR);
#endif
            load(REGISTRAR, SLOTS_USED, used);
            if
            :: used > 0 -> load(REGISTRAR, PIN, pinned)
            :: else -> pinned = 0
            fi;
            if
            :: pinned != 0 && pinned == generation - 1 -> goto scan /* RETIRED until a later scan */
            :: else -> skip
            fi;
            used = 0;
            pinned = 0
#endif
        :: else -> skip /* the fresh record has the extent: nothing to wait for */
        fi;
        /* record_free */
        store_release(REGISTRAR, VERSION + 1 - record, 0);
        store_release(REGISTRAR, WHAT + 1 - record, 0)
    :: else -> break
    od
}

inline load_words(record)
{
    load(READER, GENERATION + record, generation);
    load(READER, OFFSET + record, offset);
    load(READER, WHAT + record, what)
}

/* The slot first: if it names this record again (ABA), the version read after it has changed. */
inline load_again(record)
{
#ifdef NO_ACQUIRE_SLOT
    if
    :: load(READER, VERSION + record, again); load(READER, SLOT, slot_again)
    :: load(READER, SLOT, slot_again); load(READER, VERSION + record, again)
    fi
#else
    load(READER, SLOT, slot_again);
    load(READER, VERSION + record, again)
#endif
}

proctype reader()
{
    byte scan_at, looks, slot, slot_again, version, again, generation, offset, what, bytes;
    do
    :: looks < LOOKS ->
        looks++;
        /* record_look */
        load(READER, SLOT, slot);
        slot--;
#ifdef NO_ACQUIRE_FIND
        if
        :: load_words(slot); load(READER, VERSION + slot, version)
        :: load(READER, VERSION + slot, version); load_words(slot)
        fi;
        load_again(slot);
#else
        load(READER, VERSION + slot, version);
#ifdef NO_FENCE_FIND
        if
        :: load_again(slot); load_words(slot)
        :: load_words(slot); load_again(slot)
        fi;
#else
        load_words(slot);
        load_again(slot);
#endif
#endif
        if
        :: version == 0 || again != version || slot_again != slot + 1 -> skip
        :: else ->
            assert(what == COMMITTED);
            assert(generation == wrote_generation[version] && offset == wrote_offset[version]);
            if
            :: /* copies */
#ifdef NO_FENCE_COPY
                if
                :: load(READER, VERSION + slot, again); load(READER, BYTES + offset, bytes)
                :: load(READER, BYTES + offset, bytes); load(READER, VERSION + slot, again)
                fi;
#else
                load(READER, BYTES + offset, bytes);
                load(READER, VERSION + slot, again);
#endif
                assert(again != version || bytes == generation)
            :: /* pins */
                store(READER, SLOTS_USED, 1);
                store(READER, PIN, generation);
#ifndef NO_FENCE_PIN
                fence_seq_cst(READER);
#endif
#ifdef NO_RECHECK
                again = version;
#else
                load(READER, VERSION + slot, again);
#endif
                if
                :: again == version ->
                    load(READER, BYTES + offset, bytes);
                    assert(bytes == generation);
#ifdef NO_RELEASE_GIVE
                    if
                    :: store(READER, PIN, 0); load(READER, BYTES + offset, bytes)
                    :: load(READER, BYTES + offset, bytes); store(READER, PIN, 0)
                    fi;
                    assert(bytes == generation)
#else
                    load(READER, BYTES + offset, bytes);
                    assert(bytes == generation);
                    store_release(READER, PIN, 0)
#endif
                :: else -> store_release(READER, PIN, 0)
                fi
            fi
        fi;
        slot = 0; slot_again = 0; version = 0; again = 0; generation = 0; offset = 0; what = 0;
        bytes = 0
    :: else -> break
    od
}
