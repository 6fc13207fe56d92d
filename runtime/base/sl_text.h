/* runtime/base/sl_text.h - makes text from outside safe to print.
 *
 * A terminal obeys control characters of C0 and C1, and Unicode's bidirectional controls reorder
 * text. Code that prints names, keys, errors or logs uses this to find the characters that it must
 * not print. */
#ifndef SL_TEXT_H
#define SL_TEXT_H

#include "runtime/base/sl_base.h"

#define SL_TEXT_NO_CHARACTER UINT32_MAX

/* Decodes the first character of a text of `left` bytes (1 or more) and sets its length.
 * SL_TEXT_NO_CHARACTER: it does not begin with valid UTF-8 (RFC 3629: shortest form, no
 * surrogates); the length is 1. */
uint32_t sl_text_next(const char *text, size_t left, size_t *length);
/* Whether a terminal may get it. False for SL_TEXT_NO_CHARACTER and line breaks. */
bool sl_text_is_plain(uint32_t character);
/* Replaces each byte of a character that is not plain by `?`; LF and TAB stay. */
void sl_text_clean(char *text);

#endif
