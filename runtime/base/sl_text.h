/* runtime/base/sl_text.h - text from outside on its way to a person.
 *
 * A terminal obeys control characters, those of C0 and C1, and shows text in another order where
 * Unicode's bidirectional controls ask for it. Whatever prints names, keys, errors or logs asks
 * here which characters it must not print as they are. */
#ifndef SL_TEXT_H
#define SL_TEXT_H

#include "runtime/base/sl_base.h"

#define SL_TEXT_NO_CHARACTER UINT32_MAX

/* The character that begins a text of left bytes (1 or more), and its length. SL_TEXT_NO_CHARACTER:
 * its first byte begins no UTF-8 (RFC 3629: shortest form, no surrogates); the length is 1. */
uint32_t sl_text_next(const char *text, size_t left, size_t *length);
/* Whether it may reach a terminal. SL_TEXT_NO_CHARACTER may not, nor may line breaks. */
bool sl_text_is_plain(uint32_t character);
/* Puts `?` for each byte of what is not plain; LF and TAB stay. */
void sl_text_clean(char *text);

#endif
