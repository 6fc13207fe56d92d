/* client/top/screen.h - the live view in a terminal, by ncurses. */
#ifndef SL_CLIENT_TOP_SCREEN_H
#define SL_CLIENT_TOP_SCREEN_H

#include "client/top/top.h"

/* Until somebody ends it. Errors: SL_ERR_OS (the terminal is not known), SL_ERR_NO_MEMORY. */
sl_err top_screen_run(struct top *top, struct sl_error *why);

#endif
