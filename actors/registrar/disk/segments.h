/* actors/registrar/disk/segments.h - which records have a place in which segment. */
#ifndef SL_REGISTRAR_DISK_SEGMENTS_H
#define SL_REGISTRAR_DISK_SEGMENTS_H

#include "actors/registrar/base/core.h"

struct reg_segment {
    uint64_t number; /* disk << 32 | segment */
    sl_ref *refs;    /* records that had a place here when they were noted */
    uint32_t count, capacity;
    uint32_t live;
};

void reg_segment_note(struct registrar *self, sl_ref ref, const struct sl_disk_place *place,
                      bool fresh);
/* The record of this number (from 0) that may still have a place in the segment; 0: there are no
 * more. During a reclaim of the segment, numbers stay as they are. */
sl_ref reg_segment_ref(const struct registrar *self, uint32_t disk, uint32_t segment,
                       uint32_t number);
/* Takes the last one out of the list. */
sl_ref reg_segment_take(struct registrar *self, uint32_t disk, uint32_t segment);
/* Whether the record is there, and has its place there; then gives it. */
bool reg_segment_has(struct registrar *self, uint32_t disk, uint32_t segment, sl_ref ref,
                     struct sl_entry *entry);

extern const struct reg_part reg_segments_part;

#endif
