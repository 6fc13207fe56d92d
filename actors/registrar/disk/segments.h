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
#define REG_RECLAIMED_MAX 1024u

void reg_segment_note(struct registrar *self, sl_ref ref, const struct sl_disk_place *place,
                      bool fresh);
void reg_segment_left(struct registrar *self, const struct sl_disk_place *place);
/* Records that may still have a place in the segment: borrowed until one gets or loses a place. */
const sl_ref *reg_segment_refs(struct registrar *self, uint32_t disk, uint32_t segment,
                               uint32_t *count);
/* Gives *refs (free): the same. */
void reg_segment_take(struct registrar *self, uint32_t disk, uint32_t segment, sl_ref **refs,
                      uint32_t *count);
void reg_segments_come_anew(struct registrar *self, uint32_t disk); /* a scan tells them all */
bool reg_segment_reclaimed(const struct registrar *self, uint32_t disk, uint32_t segment);
void reg_segment_gone(struct registrar *self, uint32_t disk,
                      uint32_t segment); /* it was reclaimed */

extern const struct reg_part reg_segments_part;

#endif
