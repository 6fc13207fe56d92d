/* ipc/sl_rails.h - processes that move bytes for a node's door, transporter.0: which of them may still
 * do what a door that is dead has ordered.
 *
 * transporter.N leaves a note before it follows the first order of a door: its pid, start time and the
 * boot, in RUNTIME_DIR/rail.N. It removes the note when its fabric is closed, so that nothing lands
 * any more. A note whose process is dead counts for nothing. So whoever knows that a door is dead, and
 * finds no note of a living process afterwards, knows that nothing of that door lands. */
#ifndef SL_RAILS_H
#define SL_RAILS_H

#include "ipc/sl_msg.h"

#define SL_RAILS_MAX 16u

/* Errors: SL_ERR_OS; then there may be none. */
sl_err sl_rail_note(const struct sl_env *env, uint32_t rail, struct sl_error *why);
void sl_rail_note_remove(const struct sl_env *env, uint32_t rail);
/* Rails 1..count-1 whose note is of a process that lives, a bit each, and these processes. What cannot
 * be told counts, with pid 0. */
uint32_t sl_rails_noted(struct sl_env *env, uint32_t count, struct sl_proc_id out[SL_RAILS_MAX]);

#endif
