/* actors/transporter/rails/handout.h - descriptors of memory that the door hands out to rails of other
 * processes: engines' pools, which these map or give to their NIC (runtime/sl_descriptors.h). The
 * door keeps a copy of each, so an engine that dies takes nothing away from a process that begins
 * anew before the door has noticed.
 *
 * A thread of its own answers, behind a lock. All else is of one thread. */
#ifndef SL_TRANSPORTER_RAILS_HANDOUT_H
#define SL_TRANSPORTER_RAILS_HANDOUT_H

#include "runtime/sl_error.h"

struct tr_handout; /* opaque */

/* count_max: descriptors at a time. Errors: SL_ERR_NO_MEMORY, those of sl_descriptors_serve. */
sl_err tr_handout_open(const char *runtime_dir, uint32_t count_max, struct tr_handout **out,
                       struct sl_error *why);
void tr_handout_close(struct tr_handout **handout);
/* Where they are handed out: the last two parts of the socket's name. */
uint32_t tr_handout_pid(const struct tr_handout *handout);
uint64_t tr_handout_socket(const struct tr_handout *handout);
/* Keeps a copy of the descriptor and gives its number, which is never 0 nor used again. Errors:
 * SL_ERR_LIMIT, SL_ERR_OS. */
sl_err tr_handout_add(struct tr_handout *handout, int fd, uint64_t length_bytes, uint64_t *number,
                      struct sl_error *why);
/* Nobody gets it any more; those who have it keep it. 0 is none. */
void tr_handout_remove(struct tr_handout *handout, uint64_t number);

#endif
