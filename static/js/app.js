// What a page does by itself, on top of plain links and forms that work without it.
"use strict";
