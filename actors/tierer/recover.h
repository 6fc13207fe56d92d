/* actors/tierer/recover.h - reading segments at the start: for start.c alone. */
#ifndef SL_TIERER_RECOVER_H
#define SL_TIERER_RECOVER_H

#include "actors/tierer/state.h"

/* A way through the frames of a segment. */
struct ti_walk {
    uint64_t offset;
    uint64_t sequence;   /* of the last frame */
    uint32_t damaged;    /* places where a frame should have stood and did not */
    uint32_t unreadable; /* pages behind the last frame */
    /* Frames of tombstones: the newest one that is known of (set by the caller at first), the
     * newest one here, and one that is missing; 0: none. */
    uint64_t tombstones_seen, tombstone_last, tombstones_lost;
    struct sl_digest tombstones; /* the records of the newest one: another frame may repeat them */
};

typedef sl_err (*ti_take_fn)(struct tierer *self, struct ti_segment *segment,
                             const struct ti_record *record, struct sl_error *why);
/* Gives `take` the records of all frames in a segment; verify: only those whose values are right.
 */
sl_err ti_frames_walk(struct tierer *self, struct ti_segment *segment, bool verify, ti_take_fn take,
                      struct ti_walk *walk, struct sl_error *why);
/* Reads the footer of a segment whose bytes are those of its file. Gives its records (free).
 * Errors: SL_ERR_NOT_FOUND (there is none that is whole), SL_ERR_NO_MEMORY. */
sl_err ti_footer_read(struct tierer *self, const struct ti_segment *segment,
                      unsigned char **records, struct ti_trailer *trailer, struct sl_error *why);

/* The end of it alone, by way of frame_buffer. */
bool ti_trailer_read(struct tierer *self, const struct ti_segment *segment,
                     struct ti_trailer *trailer);

enum ti_header_state {
    TI_HEADER_NONE,
    TI_HEADER_FINE,
    TI_HEADER_OTHER_FORMAT,
    TI_HEADER_UNREADABLE
};

/* Takes over what the header says, or its copy. */
enum ti_header_state ti_header_find(struct tierer *self, struct ti_segment *segment,
                                    uint64_t file_bytes);

#endif
