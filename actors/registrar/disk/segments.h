/* actors/registrar/disk/segments.h - which records have a place in which segment. */
#ifndef SL_REGISTRAR_DISK_SEGMENTS_H
#define SL_REGISTRAR_DISK_SEGMENTS_H

#include "actors/registrar/base/core.h"

struct reg_segment {
    uint64_t number; /* disk << 32 | segment */
    struct reg_segment_item {
        sl_ref ref;       /* of a record that had a place here when it was noted */
        uint32_t version; /* the low half: another record's is another */
    } * items;
    uint32_t count, capacity, looked;
    uint32_t live;
};

void reg_segment_note(struct registrar *self, sl_ref ref, const struct sl_disk_place *place,
                      bool fresh);
/* Of the segment of a disk that is being reclaimed: the record of this number (from 0) that may
 * still have a place there; 0: there are no more. Numbers stay as they are meanwhile. */
sl_ref reg_segment_ref(const struct registrar *self, uint32_t disk, uint32_t number);
/* Takes the last one out of the list. */
sl_ref reg_segment_take(struct registrar *self, uint32_t disk);
/* Looks at the next item of all segments of the disk: false, there are no more. entry->ref 0: none
 * that has a place there. */
bool reg_segments_sweep(const struct registrar *self, uint32_t disk, struct sl_entry *entry);
/* Whether the scan of the disk has found the record. */
bool reg_segment_found(const struct registrar *self, uint32_t disk, sl_ref ref);
void reg_segment_find(struct registrar *self, uint32_t disk, sl_ref ref, bool found);
/* Whether the record is there, and has its place there; then gives it. */
bool reg_segment_has(const struct registrar *self, uint32_t disk, sl_ref ref,
                     struct sl_entry *entry);

extern const struct reg_part reg_segments_part;

#endif
