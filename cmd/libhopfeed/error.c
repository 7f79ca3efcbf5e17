#include <stdlib.h>

#include "hopfeed.h"

/* Of each thread, as callers of different threads must not see each other's errors. */
static __thread char *last_error;

hopfeed_text hopfeed_last_error(void) { return last_error ? last_error : ""; }

/* Takes over the text. */
void hopfeed_set_error(char *text) {
    free(last_error);
    last_error = text;
}
