// What the libraries show to programs that link them. Everything is compiled with hidden visibility
// (-fvisibility=hidden), so a name is exported only if its declaration says so. The macros
// are the same for the library and for its users: no definition has to be given when building one.
#pragma once

// On a class with members that are compiled into the library, with virtual functions, or that is
// thrown or caught across libraries; and on a function that is compiled into the library.
#define ACCELERATE_EXPORT [[gnu::visibility("default")]]

// On the private implementation inside an exported class, which would otherwise be exported with
// it.
#define ACCELERATE_HIDDEN [[gnu::visibility("hidden")]]
